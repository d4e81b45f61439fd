/* Versions and names; then the tests of the other files. */
#include "c_test.h"

int failures = 0;

deltawire_tensor tensor_of(const char* name, float* values, uint64_t count) {
  deltawire_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.name = name;
  tensor.values = values;
  tensor.count = count;
  tensor.dtype = DELTAWIRE_F32;
  return tensor;
}

void fill(float* values, uint64_t count) {
  uint64_t i;
  for (i = 0; i < count; ++i) values[i] = (i % 2 == 0 ? 0.01F : -0.01F) * (float)(i + 1);
}

static void test_versions(void) {
  EXPECT(deltawire_abi_version() == DELTAWIRE_ABI_VERSION);
  EXPECT(strchr(deltawire_version(), '.') != NULL);
  EXPECT(strcmp(deltawire_error_name(DELTAWIRE_INVALID_ARGUMENT), "InvalidArgument") == 0);
  EXPECT(strcmp(deltawire_error_name(DELTAWIRE_TIMEOUT), "Timeout") == 0);
  EXPECT(strcmp(deltawire_error_name(DELTAWIRE_STATE), "State") == 0);
  EXPECT(strcmp(deltawire_error_name(DELTAWIRE_NO_MEMORY), "NoMemory") == 0);
  EXPECT(strcmp(deltawire_error_name(DELTAWIRE_NO_QUORUM + 1), "Unknown") == 0);
  EXPECT(strcmp(deltawire_error_name(-1), "Unknown") == 0);
  EXPECT(strcmp(deltawire_error_name(INT32_MAX), "Unknown") == 0);
  EXPECT(sizeof(deltawire_error) == 1024);
}

int main(void) {
  test_versions();
  test_elastic(); /* before others have threads, as it forks */
  test_codecs();
  test_channels();
  test_sessions();
  test_patches();
  if (failures != 0) printf("%d failures\n", failures);
  return failures != 0;
}
