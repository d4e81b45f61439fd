// A .dw file from anywhere.
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "deltawire/file.h"
#include "fuzz_inputs.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kMaxCount = 1 << 16;  // what this receiver is ready for

std::set<std::string> decoded;  // the specs

void decode(Bytes data) {
  const auto header = read_file_header(data);
  if (!header || header->count() > kMaxCount) return;
  std::vector<float> out(header->count());
  if (decode_file(data, TensorSlot{out.data(), out.size(), header->dtype}))
    decoded.insert(header->codec_spec);
}

}  // namespace
}  // namespace deltawire

extern "C" void fuzz_after_seeds() {
  if (deltawire::decoded.size() != deltawire::fuzz::codec_specs().size()) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  deltawire::decode(std::as_bytes(std::span(data, size)));
  return 0;
}
