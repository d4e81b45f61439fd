#include "c_bytes.h"

extern "C" {

const void* deltawire_bytes_data(const deltawire_bytes* bytes) {
  return bytes == nullptr ? nullptr : bytes->bytes.data();
}

std::uint64_t deltawire_bytes_count(const deltawire_bytes* bytes) {
  return bytes == nullptr ? 0 : bytes->bytes.size();
}

void deltawire_bytes_free(deltawire_bytes* bytes) {
  delete bytes;
}

}  // extern "C"
