// A worker's word to a server that no push of it for a step will come, because other parts of its model have
// the step already.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "deltawire/codec.h"
#include "deltawire/result.h"

namespace deltawire {

// The step (u64, little-endian), and the CRC-32C of its bytes (u32). Any push is longer.
using SkipMessage = std::array<std::byte, 12>;

SkipMessage skip_message(std::uint64_t step) noexcept;
constexpr bool is_skip(std::uint64_t bytes) noexcept {
  return bytes == std::tuple_size_v<SkipMessage>;
}
// The step, of a message whose size is_skip. Errors: kCorrupt.
Result<std::uint64_t> read_skip(Bytes message);

}  // namespace deltawire
