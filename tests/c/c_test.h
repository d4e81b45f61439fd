/* What the tests of the C interface check with: a line for each thing that is not as it should be. */
#ifndef DELTAWIRE_C_TEST_H
#define DELTAWIRE_C_TEST_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "deltawire/deltawire.h"

extern int failures;

#define EXPECT(condition)                                            \
  do {                                                               \
    if (!(condition)) {                                              \
      ++failures;                                                    \
      printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                \
  } while (0)

/* The call gives this error, with its number in the struct and these words in the text. */
#define EXPECT_ERROR(wanted, words, error, invocation)                                                      \
  do {                                                                                                      \
    int32_t given;                                                                                          \
    memset(&(error), 0x7f, sizeof(error));                                                                  \
    given = (invocation);                                                                                   \
    if (given != (wanted) || (error).code != (wanted) || strstr((error).message, words) == NULL) {          \
      ++failures;                                                                                           \
      printf("%s:%d: %s gives %d: %.200s\n", __FILE__, __LINE__, #invocation, (int)given, (error).message); \
    }                                                                                                       \
  } while (0)

#define EXPECT_OK(error, invocation) EXPECT_ERROR(DELTAWIRE_OK, "", error, invocation)

/* A float32 tensor over the caller's values. */
deltawire_tensor tensor_of(const char* name, float* values, uint64_t count);

/* 0.01, -0.02, 0.03 ... */
void fill(float* values, uint64_t count);

void test_codecs(void);
void test_channels(void);
void test_sessions(void);
void test_elastic(void);
void test_patches(void);

#endif
