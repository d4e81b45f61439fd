// Parts of tensors, and which rank owns which: a function of (name, element count, world size) alone, never
// of buckets, so that another bucket size or a bucket rebuild changes no byte and orphans no residual.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "deltawire/tensor.h"

namespace deltawire {

// Elements [first, first + count) of `whole` as a part. `values` is the memory of the whole tensor: the
// caller's, or another copy. A part that is the whole tensor has its dims, others have none.
Named part_of(const Named& whole, std::uint64_t first, std::uint64_t count, void* values);

// The same part in staging memory, where means are float32 whatever the tensor is.
Named staged_part(Named part) noexcept;

// Points the part at another copy of its tensor.
void move_part(Named& part, const Named& whole, void* values) noexcept;

// Tensors below this many elements have one owner; docs/reference/format.md, "Parts", states it: it is on the
// wire.
inline constexpr std::uint64_t kWholeTensorElements = 16384;

// Cuts fall on multiples of this (a row of 3LC), so that a cut costs no padding.
inline constexpr std::uint64_t kCutElements = 320;

// No part has more elements, nor has a message of `gather`; docs/reference/format.md states it. So every
// codec's part fits into a frame, and its message into the transport's limit: 60 MiB of fp32, which the early
// store takes, too. A multiple of all codecs' chunks, of rows and of kRingMessageElements.
inline constexpr std::uint64_t kMostElements = std::uint64_t{64} * 245760;

// A dense part of `direct` has no more, nor has a message of them, a piece of an owner's share;
// docs/reference/format.md states it: statistics belong to parts. Small enough that pieces on their way
// overlap on slow lines and take little memory (fp32: 320 KiB), large enough that the cost of a
// message does not count. A multiple of rows, of 3LC's chunks (40,960) and of GComp's blocks (16,384).
inline constexpr std::uint64_t kPieceElements = 81920;

// Of a part, and of a message.
struct MostElements {
  std::uint64_t dense = kMostElements;
  std::uint64_t pairs = kMostElements;  // in key-value form, by dimension
};

struct OwnedRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  int owner = 0;
};

// The parts of a tensor, in order, none of them empty and none of more than `most_elements`. A tensor without
// elements has none.
std::vector<OwnedRange> owned_ranges(std::string_view name, std::uint64_t count, int world_size,
                                     std::uint64_t most_elements = kMostElements);

}  // namespace deltawire
