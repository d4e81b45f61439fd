/* Codecs: a round trip with a residual, accumulation, and arguments that can't be meant. */
#include <math.h>
#include <stdlib.h>

#include "c_test.h"

enum { kCount = 300 };

static deltawire_error error;

static void test_handles(void) {
  deltawire_codec* codec = (deltawire_codec*)&error;
  EXPECT_ERROR(DELTAWIRE_UNKNOWN_CODEC, "nonsense", error, deltawire_codec_open("nonsense", &codec, &error));
  EXPECT(codec == NULL);
  EXPECT_ERROR(DELTAWIRE_UNKNOWN_CODEC, "\"3lc rm\"", error, deltawire_codec_open("3lc\nrm", &codec, &error));
  EXPECT(deltawire_codec_open("nonsense", &codec, NULL) == DELTAWIRE_UNKNOWN_CODEC);
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "s", error, deltawire_codec_open("3lc:s=7", &codec, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "spec is NULL", error, deltawire_codec_open(NULL, &codec, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "codec is NULL", error, deltawire_codec_open("3lc", NULL, &error));
  EXPECT(deltawire_codec_spec(NULL) == NULL);
  deltawire_codec_close(NULL);
  EXPECT(deltawire_bytes_data(NULL) == NULL && deltawire_bytes_count(NULL) == 0);
  deltawire_bytes_free(NULL);
}

/* A text longer than the struct is cut, and ends. */
static void test_long_texts(void) {
  char spec[4000];
  deltawire_codec* codec = NULL;
  memset(spec, 'x', sizeof spec - 1);
  spec[sizeof spec - 1] = '\0';
  EXPECT_ERROR(DELTAWIRE_UNKNOWN_CODEC, "xxx", error, deltawire_codec_open(spec, &codec, &error));
  EXPECT(memchr(error.message, '\0', sizeof error.message) != NULL);
  EXPECT(error.suspect == DELTAWIRE_NO_SUSPECT && error.last_committed_step == DELTAWIRE_NO_STEP);
}

static void test_round_trip(const deltawire_codec* codec) {
  float values[kCount], residual[kCount] = {0}, decoded[kCount];
  uint32_t chunks = 0;
  uint64_t room = 0, i;
  deltawire_part part;
  deltawire_tensor tensor = tensor_of(NULL, values, kCount), out = tensor_of(NULL, decoded, kCount);
  fill(values, kCount);
  EXPECT_OK(error, deltawire_codec_bounds(codec, &tensor, &room, &chunks, &error));
  EXPECT(room > 0 && chunks > 0 && error.message[0] == '\0');
  memset(&part, 0, sizeof part);
  part.payload = malloc(room);
  part.payload_bytes = room;
  part.chunk_ends = malloc((chunks + 1) * sizeof *part.chunk_ends);
  part.chunks = chunks + 1; /* more room than it takes */
  EXPECT_OK(error, deltawire_codec_encode(codec, &tensor, residual, 0, &part, &error));
  EXPECT(part.payload_bytes > 0 && part.payload_bytes <= room && part.chunks <= chunks);
  EXPECT_OK(error, deltawire_codec_decode(codec, &part, &out, DELTAWIRE_OVERWRITE, 1.0F, &error));
  for (i = 0; i < kCount; ++i) EXPECT(fabsf(decoded[i] + residual[i] - values[i]) < 1e-5F);
  for (i = 0; i < kCount; ++i) values[i] = decoded[i];
  EXPECT_OK(error, deltawire_codec_decode(codec, &part, &out, DELTAWIRE_ACCUMULATE, 2.0F, &error));
  for (i = 0; i < kCount; ++i) EXPECT(fabsf(decoded[i] - 3 * values[i]) < 1e-4F);

  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "into is 2", error,
               deltawire_codec_decode(codec, &part, &out, 2, 1.0F, &error));
  part.payload_bytes = 0;
  EXPECT(deltawire_codec_decode(codec, &part, &out, DELTAWIRE_OVERWRITE, 1.0F, &error) != DELTAWIRE_OK);
  part.payload_bytes = 1;
  EXPECT(deltawire_codec_decode(codec, &part, &out, DELTAWIRE_OVERWRITE, 1.0F, NULL) != DELTAWIRE_OK);
  EXPECT_ERROR(DELTAWIRE_OUTPUT_TOO_SMALL, "", error,
               deltawire_codec_encode(codec, &tensor, NULL, 0, &part, &error));
  part.reserved = 1;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "reserved", error,
               deltawire_codec_encode(codec, &tensor, NULL, 0, &part, &error));
  free(part.payload);
  free(part.chunk_ends);
}

static void test_no_codec(void) {
  float values[4] = {1, 2, 3, 4};
  deltawire_part part;
  deltawire_tensor tensor = tensor_of(NULL, values, 4);
  memset(&part, 0, sizeof part);
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "codec", error,
               deltawire_codec_encode(NULL, &tensor, NULL, 0, &part, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "codec", error,
               deltawire_codec_decode(NULL, &part, &tensor, DELTAWIRE_OVERWRITE, 1.0F, &error));
}

static void test_arguments(const deltawire_codec* codec) {
  float values[4] = {1, 2, 3, 4};
  uint64_t room = 0;
  uint32_t chunks = 0;
  deltawire_part part;
  deltawire_tensor tensor = tensor_of(NULL, values, 4), bad;
  memset(&part, 0, sizeof part);
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "codec", error,
               deltawire_codec_bounds(NULL, &tensor, &room, &chunks, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "tensor", error,
               deltawire_codec_bounds(codec, NULL, &room, &chunks, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "payload_bytes", error,
               deltawire_codec_bounds(codec, &tensor, NULL, &chunks, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "chunks", error,
               deltawire_codec_bounds(codec, &tensor, &room, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "part", error,
               deltawire_codec_encode(codec, &tensor, NULL, 0, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "part", error,
               deltawire_codec_decode(codec, NULL, &tensor, DELTAWIRE_OVERWRITE, 1.0F, &error));
  part.payload_bytes = 1;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "payload", error,
               deltawire_codec_decode(codec, &part, &tensor, DELTAWIRE_OVERWRITE, 1.0F, &error));
  part.payload_bytes = 0;
  part.chunks = 1;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "chunk_ends", error,
               deltawire_codec_encode(codec, &tensor, NULL, 0, &part, &error));

  bad = tensor;
  bad.values = NULL;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "values", error,
               deltawire_codec_bounds(codec, &bad, &room, &chunks, &error));
  bad = tensor;
  bad.dtype = 0;
  EXPECT_ERROR(DELTAWIRE_UNSUPPORTED_DTYPE, "dtype is 0", error,
               deltawire_codec_bounds(codec, &bad, &room, &chunks, &error));
  bad.dtype = DELTAWIRE_F16 + 1;
  EXPECT_ERROR(DELTAWIRE_UNSUPPORTED_DTYPE, "dtype is 4", error,
               deltawire_codec_bounds(codec, &bad, &room, &chunks, &error));
  bad = tensor;
  bad.count = UINT64_C(1) << 32;
  EXPECT_ERROR(DELTAWIRE_LIMIT, "elements", error,
               deltawire_codec_bounds(codec, &bad, &room, &chunks, &error));
  bad = tensor;
  bad.reserved[2] = 1;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "reserved", error,
               deltawire_codec_bounds(codec, &bad, &room, &chunks, &error));
  bad = tensor_of(NULL, NULL, 0);
  EXPECT_OK(error, deltawire_codec_bounds(codec, &bad, &room, &chunks, &error));
}

static void test_dims(const deltawire_codec* codec) {
  float values[4] = {1, 2, 3, 4};
  uint64_t dims[2] = {2, 2}, none[3] = {5, UINT64_C(1) << 40, 0}, room = 0;
  uint32_t chunks = 0;
  deltawire_tensor tensor = tensor_of(NULL, values, 4);
  tensor.dim_count = 2;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "dims", error,
               deltawire_codec_bounds(codec, &tensor, &room, &chunks, &error));
  tensor.dims = dims;
  EXPECT_OK(error, deltawire_codec_bounds(codec, &tensor, &room, &chunks, &error));
  dims[1] = (UINT64_C(1) << 63) + 2; /* twice this wraps around to 4, the count */
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "dims", error,
               deltawire_codec_bounds(codec, &tensor, &room, &chunks, &error));
  dims[0] = 4; /* the count already */
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "dims", error,
               deltawire_codec_bounds(codec, &tensor, &room, &chunks, &error));
  tensor = tensor_of(NULL, NULL, 0);
  tensor.dims = none, tensor.dim_count = 3;
  EXPECT_OK(error, deltawire_codec_bounds(codec, &tensor, &room, &chunks, &error));
}

void test_codecs(void) {
  deltawire_codec* codec = NULL;
  test_handles();
  test_long_texts();
  test_no_codec();
  EXPECT_OK(error, deltawire_codec_open("3lc", &codec, &error));
  EXPECT(strncmp(deltawire_codec_spec(codec), "3lc:s=", 6) == 0);
  test_round_trip(codec);
  test_arguments(codec);
  test_dims(codec);
  deltawire_codec_close(codec);
}
