// A .dw file from anywhere.
#include <vector>

#include "deltawire/file.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kMaxCount = 1 << 16;  // what this receiver is ready for

void decode(Bytes data) {
  const auto header = read_file_header(data);
  if (!header || header->count() > kMaxCount) return;
  std::vector<float> out(header->count());
  (void)decode_file(data, TensorSlot{out.data(), out.size(), header->dtype});
}

}  // namespace
}  // namespace deltawire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  deltawire::decode(std::as_bytes(std::span(data, size)));
  return 0;
}
