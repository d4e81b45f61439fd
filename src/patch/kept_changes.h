// What decoding has found in a chunk, kept so that it can be written later, when the whole patch is known to
// be sound, without decoding again.
#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "base/little_endian.h"
#include "patch/patch_ops.h"

namespace deltawire::patch {

// The places and new patterns of a chunk's changes: first all places, then all patterns.
class KeptChanges {
 public:
  // Keeps the changes that were decoded into `scratch` and applied to `weights`, unless `room` or the memory
  // does not suffice. Takes its bytes from `room`, which threads share.
  void keep(std::uint32_t changes, const Scratch& scratch, const std::byte* weights, unsigned element_bytes,
            std::atomic<std::int64_t>& room) noexcept {
    const std::uint64_t place_bytes = sizeof(std::uint16_t) * std::uint64_t{changes};
    const std::uint64_t bytes = place_bytes + std::uint64_t{changes} * element_bytes;
    if (room.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed) <
        static_cast<std::int64_t>(bytes)) {
      return;
    }
    bytes_.reset(new (std::nothrow) std::byte[bytes]);
    if (bytes_ == nullptr) return;
    changes_ = changes;
    std::memcpy(bytes_.get(), scratch.place, place_bytes);
    std::byte* const patterns = bytes_.get() + place_bytes;
    if (element_bytes == 1) return gather<std::uint8_t>(weights, scratch.place, patterns);
    if (element_bytes == 2) return gather<std::uint16_t>(weights, scratch.place, patterns);
    gather<std::uint32_t>(weights, scratch.place, patterns);
  }

  bool has_some() const noexcept { return bytes_ != nullptr; }

  void write(std::byte* weights, unsigned element_bytes) const noexcept {
    assert(has_some());
    if (element_bytes == 1) return scatter<std::uint8_t>(weights);
    if (element_bytes == 2) return scatter<std::uint16_t>(weights);
    scatter<std::uint32_t>(weights);
  }

 private:
  template <class Bits>
  void gather(const std::byte* weights, const std::uint16_t* places, std::byte* patterns) const noexcept {
    for (std::uint32_t i = 0; i < changes_; ++i) {
      store_le(patterns + sizeof(Bits) * i, load_le<Bits>(weights + sizeof(Bits) * places[i]));
    }
  }

  template <class Bits>
  void scatter(std::byte* weights) const noexcept {
    const std::byte* const patterns = bytes_.get() + sizeof(std::uint16_t) * std::uint64_t{changes_};
    for (std::uint32_t i = 0; i < changes_; ++i) {
      std::uint16_t place = 0;
      std::memcpy(&place, bytes_.get() + sizeof place * i, sizeof place);
      store_le(weights + sizeof(Bits) * place, load_le<Bits>(patterns + sizeof(Bits) * i));
    }
  }

  std::unique_ptr<std::byte[]> bytes_;
  std::uint32_t changes_ = 0;
};

}  // namespace deltawire::patch
