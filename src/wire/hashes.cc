#include "wire/hashes.h"

#include <array>
#include <cassert>
#include <string>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/little_endian.h"

namespace deltawire {

std::uint64_t params_hash(std::string_view canonical_codec_spec, const Policy& policy) {
  std::string text = std::string(canonical_codec_spec) + ";min=" + std::to_string(policy.min_elements);
  if (policy.nonfinite == NonFinite::kPass) text += ";nonfinite=pass";
  return XXH64(text.data(), text.size(), 0);
}

std::uint32_t layout_hash(std::span<const Named> parts) {
  std::vector<std::byte> text;
  const auto append = [&text](std::uint64_t number, std::size_t bytes) {
    assert(bytes == 8 || number >> (8 * bytes) == 0);
    std::array<std::byte, 8> stored{};
    store_le(stored.data(), number);
    text.insert(text.end(), stored.begin(), stored.begin() + static_cast<std::ptrdiff_t>(bytes));
  };
  for (const Named& part : parts) {
    append(part.name.size(), 4);
    const auto name = std::as_bytes(std::span(part.name));
    text.insert(text.end(), name.begin(), name.end());
    append(part.first, 8);
    append(part.tensor.elements(), 8);
    append(static_cast<std::uint64_t>(part.tensor.dtype), 1);
    append(part.whole_elements(), 8);
    append(part.whole_dims(), 1);
    if (part.tensor.dims.empty()) append(part.tensor.elements(), 8);
    for (const std::uint64_t extent : part.tensor.dims) append(extent, 8);
  }
  return static_cast<std::uint32_t>(digest64(text, 0));
}

std::uint64_t name_hash(const Named& part) noexcept {
  return part.name_hash != 0 ? part.name_hash : digest64(std::as_bytes(std::span(part.name)), 0);
}

std::uint64_t digest64(Bytes bytes, std::uint64_t seed) noexcept {
  return XXH64(bytes.data(), bytes.size(), seed);
}

std::uint64_t fast_digest64(Bytes bytes, std::uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace deltawire
