/* Patches: a round trip, in place and elsewhere, and arguments that can't be meant. */
#include "c_test.h"

enum { kWeights = 1000, kBytes = 2 * kWeights };

static deltawire_error error;

static void test_round_trip(const uint16_t* before, const uint16_t* after) {
  uint16_t weights[kWeights];
  uint64_t old_digest = 0, new_digest = 0;
  deltawire_bytes* patch = NULL;
  const void* data;
  uint64_t count;
  EXPECT_OK(error, deltawire_patch_make(before, after, kBytes, DELTAWIRE_WEIGHTS_BF16, &patch, &error));
  data = deltawire_bytes_data(patch);
  count = deltawire_bytes_count(patch);
  EXPECT(data != NULL && count > 0 && count < kBytes / 4);
  EXPECT_OK(error, deltawire_patch_verify(data, count, before, kBytes, DELTAWIRE_WEIGHTS_BF16, &error));
  EXPECT_OK(error,
            deltawire_patch_apply(data, count, before, kBytes, DELTAWIRE_WEIGHTS_BF16, weights, &error));
  EXPECT(memcmp(weights, after, kBytes) == 0);
  memcpy(weights, before, kBytes);
  EXPECT_OK(error,
            deltawire_patch_apply(data, count, weights, kBytes, DELTAWIRE_WEIGHTS_BF16, weights, &error));
  EXPECT(memcmp(weights, after, kBytes) == 0);

  EXPECT_OK(error, deltawire_weights_digest(before, kBytes, DELTAWIRE_WEIGHTS_BF16, &old_digest, &error));
  EXPECT_OK(error, deltawire_weights_digest(weights, kBytes, DELTAWIRE_WEIGHTS_BF16, &new_digest, &error));
  EXPECT(old_digest != new_digest && memcmp((const char*)data + 32, &old_digest, 8) == 0 &&
         memcmp((const char*)data + 40, &new_digest, 8) == 0);

  EXPECT_ERROR(DELTAWIRE_MISMATCH, "digest", error,
               deltawire_patch_apply(data, count, after, kBytes, DELTAWIRE_WEIGHTS_BF16, weights, &error));
  EXPECT_ERROR(DELTAWIRE_MISMATCH, "bfloat16", error,
               deltawire_patch_verify(data, count, before, kBytes, DELTAWIRE_WEIGHTS_F16, &error));
  EXPECT_ERROR(DELTAWIRE_TRUNCATED, "ends", error,
               deltawire_patch_verify(data, count - 1, before, kBytes, DELTAWIRE_WEIGHTS_BF16, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "new_weights is NULL", error,
               deltawire_patch_apply(data, count, before, kBytes, DELTAWIRE_WEIGHTS_BF16, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "old_weights is NULL", error,
               deltawire_patch_verify(data, count, NULL, kBytes, DELTAWIRE_WEIGHTS_BF16, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "patch is NULL", error,
               deltawire_patch_verify(NULL, count, before, kBytes, DELTAWIRE_WEIGHTS_BF16, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "patch is NULL", error,
               deltawire_patch_apply(NULL, count, before, kBytes, DELTAWIRE_WEIGHTS_BF16, weights, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "old_weights is NULL", error,
               deltawire_patch_apply(data, count, NULL, kBytes, DELTAWIRE_WEIGHTS_BF16, weights, &error));
  EXPECT_ERROR(DELTAWIRE_MISMATCH, "digest", error,
               deltawire_patch_verify(data, count, after, kBytes, DELTAWIRE_WEIGHTS_BF16, &error));
  EXPECT_ERROR(DELTAWIRE_TRUNCATED, "", error,
               deltawire_patch_verify(NULL, 0, before, kBytes, DELTAWIRE_WEIGHTS_BF16, &error));
  deltawire_bytes_free(patch);
}

static void test_arguments(const uint16_t* weights) {
  uint64_t digest = 0;
  deltawire_bytes* patch = (deltawire_bytes*)&error;
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "new_weights is NULL", error,
               deltawire_patch_make(weights, NULL, kBytes, DELTAWIRE_WEIGHTS_F16, &patch, &error));
  EXPECT(patch == NULL);
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "old_weights is NULL", error,
               deltawire_patch_make(NULL, weights, kBytes, DELTAWIRE_WEIGHTS_F16, &patch, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "weights is NULL", error,
               deltawire_weights_digest(NULL, kBytes, DELTAWIRE_WEIGHTS_F16, &digest, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "patch is NULL", error,
               deltawire_patch_make(weights, weights, kBytes, DELTAWIRE_WEIGHTS_F16, NULL, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "no whole number", error,
               deltawire_patch_make(weights, weights, 3, DELTAWIRE_WEIGHTS_F16, &patch, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "type", error,
               deltawire_weights_digest(weights, kBytes, 256 + DELTAWIRE_WEIGHTS_F16, &digest, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "type", error,
               deltawire_weights_digest(weights, kBytes, -1, &digest, &error));
  EXPECT_ERROR(DELTAWIRE_INVALID_ARGUMENT, "digest is NULL", error,
               deltawire_weights_digest(weights, kBytes, DELTAWIRE_WEIGHTS_F16, NULL, &error));
  /* No weights are weights. */
  EXPECT_OK(error, deltawire_patch_make(NULL, NULL, 0, DELTAWIRE_WEIGHTS_F16, &patch, &error));
  EXPECT_OK(error, deltawire_patch_apply(deltawire_bytes_data(patch), deltawire_bytes_count(patch), NULL, 0,
                                         DELTAWIRE_WEIGHTS_F16, NULL, &error));
  deltawire_bytes_free(patch);
}

void test_patches(void) {
  uint16_t before[kWeights], after[kWeights];
  int i;
  for (i = 0; i < kWeights; ++i) {
    before[i] = (uint16_t)(0x3c00 + i * 7919 % 512);
    after[i] = (uint16_t)(before[i] + (i % 50 == 0));
  }
  test_round_trip(before, after);
  test_arguments(before);
}
