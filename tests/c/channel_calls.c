/* Channels: a message of two tensors with residuals, saving and loading, and arguments that can't be meant.
 */
#include <math.h>
#include <stdlib.h>

#include "c_test.h"

enum { kCount = 300, kSmall = 5, kRoom = 8192 };

static deltawire_error error;
static const deltawire_message kFirst = {0, 0, 1, 0, 0, 1.0F, 0};

static void test_options(void) {
  deltawire_channel_options options;
  deltawire_channel* channel = NULL;
  memset(&options, 0, sizeof options);
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "_init", error,
               deltawire_channel_open("3lc", &options, &channel, &error));
  EXPECT_ERROR(DELTAWIRE_UNSUPPORTED_VERSION, "newer", error,
               deltawire_channel_options_init(&options, DELTAWIRE_ABI_VERSION + 1, &error));
  EXPECT(options.min_elements == 0);
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "options is NULL", error,
               deltawire_channel_options_init(NULL, DELTAWIRE_ABI_VERSION, &error));
  EXPECT_OK(error, deltawire_channel_options_init(&options, DELTAWIRE_ABI_VERSION, &error));
  EXPECT(options.min_elements == 256 && options.error_feedback == 1 && options.fold_revert == 0);
  options.abi_version = DELTAWIRE_ABI_VERSION + 1;
  EXPECT_ERROR(DELTAWIRE_UNSUPPORTED_VERSION, "version 2", error,
               deltawire_channel_open("3lc", &options, &channel, &error));
  options.abi_version = DELTAWIRE_ABI_VERSION;
  options.fold_revert = 2;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "fold_revert is 2", error,
               deltawire_channel_open("3lc", &options, &channel, &error));
  options.fold_revert = 1;
  options.reserved[0] = 1;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "reserved", error,
               deltawire_channel_open("3lc", &options, &channel, &error));
  options.reserved[0] = 0;
  EXPECT_OK(error, deltawire_channel_open("3lc", &options, &channel, &error));
  deltawire_channel_close(channel);
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "rules is NULL", error,
               deltawire_channel_open(NULL, NULL, &channel, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "rest", error,
               deltawire_channel_open("conv*: 3lc", NULL, &channel, &error));
  EXPECT(channel == NULL);
  deltawire_channel_close(NULL);
  EXPECT(deltawire_channel_spec(NULL) == NULL);
}

static void test_arguments(deltawire_channel* channel, const deltawire_tensor* tensors) {
  unsigned char bytes[kRoom];
  uint64_t size = 0, count = 0;
  const float* values = NULL;
  deltawire_bytes* state = NULL;
  deltawire_tensor nameless = tensors[0];
  deltawire_tensor two[2];
  deltawire_message message = kFirst;
  nameless.name = NULL;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "channel", error,
               deltawire_channel_encode(NULL, tensors, 2, &kFirst, bytes, kRoom, &size, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "tensors is NULL", error,
               deltawire_channel_encode(channel, NULL, 2, &kFirst, bytes, kRoom, &size, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "tensors[0].name", error,
               deltawire_channel_encode(channel, &nameless, 1, &kFirst, bytes, kRoom, &size, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "message is NULL", error,
               deltawire_channel_encode(channel, tensors, 2, NULL, bytes, kRoom, &size, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "out is NULL", error,
               deltawire_channel_encode(channel, tensors, 2, &kFirst, NULL, kRoom, &size, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "message_bytes", error,
               deltawire_channel_encode(channel, tensors, 2, &kFirst, bytes, kRoom, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_OUTPUT_TOO_SMALL, "room for 3", error,
               deltawire_channel_encode(channel, tensors, 2, &kFirst, bytes, 3, &size, &error));
  two[0] = two[1] = tensors[0];
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "two tensors are called 'w'", error,
               deltawire_channel_encode(channel, two, 2, &kFirst, bytes, kRoom, &size, &error));
  two[1] = tensor_of("v", (float*)tensors[0].values + kCount - 1, 1);
  EXPECT_ERROR(
      DELTAWIRE_INVALID_ARGUMENT, "'w' and 'v' share memory", error,
      deltawire_channel_decode(channel, bytes, 9, two, 2, &kFirst, DELTAWIRE_OVERWRITE, 1.0F, &error));
  two[1] = tensor_of("v", (float*)tensors[0].values + kCount, 0);
  EXPECT(deltawire_channel_decode(channel, bytes, 9, two, 2, &kFirst, DELTAWIRE_OVERWRITE, 1.0F, &error) !=
         DELTAWIRE_INVALID_ARGUMENT);
  message.reserved = 1;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "reserved", error,
               deltawire_channel_encode(channel, tensors, 2, &message, bytes, kRoom, &size, &error));
  EXPECT_ERROR(
      DELTAWIRE_INVALID_ARGUMENT, "bytes is NULL", error,
      deltawire_channel_decode(channel, NULL, 9, tensors, 2, &kFirst, DELTAWIRE_OVERWRITE, 1.0F, &error));
  EXPECT_ERROR(
      DELTAWIRE_TRUNCATED, "", error,
      deltawire_channel_decode(channel, NULL, 0, tensors, 2, &kFirst, DELTAWIRE_OVERWRITE, 1.0F, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "into is -1", error,
               deltawire_channel_decode(channel, bytes, 1, tensors, 2, &kFirst, -1, 1.0F, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "name", error,
               deltawire_channel_residual(channel, NULL, &values, &count, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "values", error,
               deltawire_channel_residual(channel, "w", NULL, &count, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "count", error,
               deltawire_channel_residual(channel, "w", &values, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "state", error, deltawire_channel_save(channel, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "channel", error, deltawire_channel_save(NULL, &state, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "state is NULL", error,
               deltawire_channel_load(channel, NULL, 1, &error));
  EXPECT(deltawire_channel_load(channel, "garbage", 7, &error) != DELTAWIRE_OK);
  EXPECT(deltawire_channel_commit(NULL, &error) == DELTAWIRE_INVALID_ARGUMENT);
  EXPECT(deltawire_channel_revert(NULL, NULL) == DELTAWIRE_INVALID_ARGUMENT);
}

/* A message, and what it leaves: in `saved`, which is the caller's to free. */
static void test_message(deltawire_channel* channel, const deltawire_tensor* tensors,
                         deltawire_bytes** saved) {
  unsigned char bytes[kRoom];
  float decoded[kCount] = {0}, small[kSmall] = {0};
  const float* residual = NULL;
  const float* values = tensors[0].values;
  uint64_t size = 0, bound = 0, count = 0, i;
  deltawire_tensor out[2];
  deltawire_message other = kFirst;
  out[0] = tensor_of("w", decoded, kCount);
  out[1] = tensor_of("b", small, kSmall);
  EXPECT_OK(error, deltawire_channel_bound(channel, tensors, 2, 0, &bound, &error));
  EXPECT(bound > 0 && bound <= kRoom);
  EXPECT_OK(error, deltawire_channel_encode(channel, tensors, 2, &kFirst, bytes, bound, &size, &error));
  EXPECT(size > 0 && size <= bound);
  EXPECT_ERROR(DELTAWIRE_STATE, "", error, deltawire_channel_save(channel, saved, &error));
  EXPECT(*saved == NULL);
  EXPECT_OK(error, deltawire_channel_commit(channel, &error));
  EXPECT_OK(error, deltawire_channel_decode(channel, bytes, size, out, 2, &kFirst, DELTAWIRE_ACCUMULATE, 1.0F,
                                            &error));
  EXPECT(memcmp(small, tensors[1].values, sizeof small) == 0); /* too small to compress */
  EXPECT_OK(error, deltawire_channel_residual(channel, "w", &residual, &count, &error));
  EXPECT(count == kCount);
  for (i = 0; i < count; ++i) EXPECT(fabsf(decoded[i] + residual[i] - values[i]) < 1e-5F);
  EXPECT_OK(error, deltawire_channel_residual(channel, "nobody", &residual, &count, &error));
  EXPECT(count == 0);
  EXPECT_OK(error, deltawire_channel_save(channel, saved, &error));
  other.step = 1;
  EXPECT_ERROR(
      DELTAWIRE_MISMATCH, "step", error,
      deltawire_channel_decode(channel, bytes, size, out, 2, &other, DELTAWIRE_OVERWRITE, 1.0F, &error));
  bytes[size / 2] ^= 1;
  EXPECT(deltawire_channel_decode(channel, bytes, size, out, 2, &kFirst, DELTAWIRE_OVERWRITE, 1.0F, &error) !=
         0);
}

static void test_loading(const deltawire_bytes* saved) {
  deltawire_channel *other = NULL, *another = NULL;
  const float* residual = NULL;
  uint64_t count = 0;
  EXPECT_OK(error, deltawire_channel_open("3lc", NULL, &other, &error));
  EXPECT_OK(error,
            deltawire_channel_load(other, deltawire_bytes_data(saved), deltawire_bytes_count(saved), &error));
  EXPECT_OK(error, deltawire_channel_residual(other, "w", &residual, &count, &error));
  EXPECT(count == kCount);
  EXPECT_OK(error, deltawire_channel_open("int8", NULL, &another, &error));
  EXPECT_ERROR(
      DELTAWIRE_MISMATCH, "", error,
      deltawire_channel_load(another, deltawire_bytes_data(saved), deltawire_bytes_count(saved), &error));
  deltawire_channel_close(other);
  deltawire_channel_close(another);
}

/* What of one NaN and of a step that is taken back each choice makes. */
static void test_choices(int32_t feedback, int32_t fold, int32_t pass) {
  unsigned char bytes[kRoom];
  float values[kCount], decoded[kCount] = {0};
  const float* residual = NULL;
  uint64_t size = 0, count = 0;
  deltawire_channel* channel = NULL;
  deltawire_channel_options options;
  deltawire_tensor tensor = tensor_of("w", values, kCount), out = tensor_of("w", decoded, kCount);
  fill(values, kCount);
  EXPECT_OK(error, deltawire_channel_options_init(&options, DELTAWIRE_ABI_VERSION, &error));
  options.error_feedback = feedback;
  options.fold_revert = fold;
  options.pass_not_finite = pass;
  EXPECT_OK(error, deltawire_channel_open("3lc", &options, &channel, &error));
  EXPECT_OK(error, deltawire_channel_encode(channel, &tensor, 1, &kFirst, bytes, kRoom, &size, &error));
  EXPECT_OK(error, deltawire_channel_revert(channel, &error));
  EXPECT_OK(error, deltawire_channel_residual(channel, "w", &residual, &count, &error));
  /* Folding keeps the step's input; an exact revert leaves nothing, as before the step. */
  EXPECT((count == kCount && fabsf(residual[299] - values[299]) < 1e-5F) == (fold == 1));
  values[7] = NAN;
  if (pass == 1) {
    EXPECT_OK(error, deltawire_channel_encode(channel, &tensor, 1, &kFirst, bytes, kRoom, &size, &error));
    EXPECT_OK(error, deltawire_channel_commit(channel, &error));
    EXPECT_OK(error, deltawire_channel_decode(channel, bytes, size, &out, 1, &kFirst, DELTAWIRE_OVERWRITE,
                                              1.0F, &error));
    EXPECT(isnan(decoded[0]));
  } else {
    EXPECT_ERROR(DELTAWIRE_NOT_FINITE, "w", error,
                 deltawire_channel_encode(channel, &tensor, 1, &kFirst, bytes, kRoom, &size, &error));
    EXPECT(strcmp(deltawire_last_error_tensor(), "w") == 0);
  }
  deltawire_channel_close(channel);
}

void test_channels(void) {
  float weights[kCount], biases[kSmall];
  deltawire_channel* channel = NULL;
  deltawire_bytes* saved = NULL;
  deltawire_tensor tensors[2];
  tensors[0] = tensor_of("w", weights, kCount);
  tensors[1] = tensor_of("b", biases, kSmall);
  fill(weights, kCount);
  fill(biases, kSmall);
  test_options();
  test_choices(1, 0, 0);
  test_choices(1, 1, 0);
  test_choices(0, 0, 0);
  test_choices(1, 0, 1);
  EXPECT_OK(error, deltawire_channel_open("3lc", NULL, &channel, &error));
  EXPECT(strncmp(deltawire_channel_spec(channel), "3lc:s=", 6) == 0);
  test_arguments(channel, tensors);
  test_message(channel, tensors, &saved);
  test_loading(saved);
  deltawire_bytes_free(saved);
  deltawire_channel_close(channel);
}
