#include "transport/links/shared_memory.h"

#include <algorithm>
#include <bit>
#include <new>

namespace deltawire {
namespace {

constexpr std::size_t kOwnRingsMax = std::size_t{32} << 20;
// Both states, and what is left of their page.
constexpr std::size_t kStatesBytes = 4096;
static_assert(2 * sizeof(RingState) <= kStatesBytes);

constexpr std::size_t file_bytes(std::size_t ring_bytes) noexcept {
  return kStatesBytes + 2 * ring_bytes;
}

bool is_ring(std::size_t bytes) noexcept {
  return std::has_single_bit(bytes) && bytes >= SharedMemory::kRingBytesMin &&
         bytes <= SharedMemory::kRingBytesMax;
}

}  // namespace

std::size_t SharedMemory::ring_bytes_for(std::size_t others) noexcept {
  if (others == 0) return 0;
  const std::size_t fair = std::bit_floor(kOwnRingsMax / 2 / others);
  return fair < kRingBytesMin ? 0 : std::min(fair, kRingBytesMax);
}

SharedMemory SharedMemory::make(std::size_t ring_bytes) noexcept {
  SharedMemory made(SharedFile::make(file_bytes(ring_bytes), SharedFile::Writers::kAll));
  if (!made) return {};
  for (const Side side : {Side::kMaker, Side::kTaker}) {
    // Nobody reads yet: whoever writes first rings.
    (new (&made.state(side)) RingState{})->reader_sleeps = 1;
  }
  return made;
}

SharedMemory SharedMemory::take(GuardedFd file) noexcept {
  SharedMemory taken(SharedFile::take(std::move(file), SharedFile::Writers::kAll));
  const std::size_t bytes = taken.file_.bytes().size();
  if (bytes < kStatesBytes || !is_ring(taken.ring_bytes()) || bytes != file_bytes(taken.ring_bytes()))
    return {};
  return taken;
}

std::size_t SharedMemory::ring_bytes() const noexcept {
  return (file_.bytes().size() - kStatesBytes) / 2;
}

RingState& SharedMemory::state(Side writer) const noexcept {
  auto* const states = reinterpret_cast<RingState*>(file_.bytes().data());
  return states[writer == Side::kMaker ? 0 : 1];
}

MutBytes SharedMemory::bytes(Side writer) const noexcept {
  const std::size_t begin = kStatesBytes + (writer == Side::kMaker ? 0 : ring_bytes());
  return file_.bytes().subspan(begin, ring_bytes());
}

}  // namespace deltawire
