// The kernels of patches: chunks of weights to bits and back. spec.md has the layout of the bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/target_id.h"

namespace deltawire::patch {

inline constexpr unsigned kMinChunkBits = 6;
inline constexpr unsigned kMaxChunkBits = 16;
inline constexpr std::uint32_t kMaxChunkElements = 1U << kMaxChunkBits;
inline constexpr std::uint32_t kMaxChunkBytes = 4 * kMaxChunkElements;
inline constexpr std::uint32_t kWordElements = 64;  // a word of a bitmap has a bit for each
inline constexpr std::uint32_t kMaxWords = kMaxChunkElements / kWordElements;

// Classes of weights by the exponent of their old value, from the largest on. The last one has the rest.
inline constexpr unsigned kClasses = 12;

// With fewer changes, classes cost more than they save.
inline constexpr std::uint32_t kClassesFrom = 48;

// Entries behind the last word's, so that a search for a rank needs no bound.
inline constexpr std::uint32_t kRankFence = 16;

// Words behind the members of a class: with a power of two, those of all classes would share a cache's set.
inline constexpr std::uint32_t kMemberPadding = 8;

enum class Form : std::uint8_t { kPlain = 0, kByClass = 1, kFull = 3 };
inline constexpr unsigned kFormBits = 2;

// How the bits of an element are divided. Integers have no exponent, and order as they are.
struct Element {
  unsigned bytes = 0;  // 1, 2 or 4
  unsigned exponent_shift = 0;
  unsigned exponent_mask = 0;  // 0: an integer
};

// The weights of a chunk.
struct ChunkView {
  const std::byte* at = nullptr;
  std::uint32_t count = 0;  // at least 1
  Element element;
};

// A chunk's bits.
struct CodedView {
  const std::byte* at = nullptr;
  std::uint64_t bytes = 0;
};

// What the kernels need besides input and output: too large for a stack.
struct Scratch {
  std::uint64_t changed[kMaxWords];                             // a bit for each element
  std::uint64_t members[kClasses][kMaxWords + kMemberPadding];  // of active classes
  // Members of a class before each word, then how many it has, then the largest number.
  std::uint32_t ranks[kClasses][kMaxWords + kRankFence];
  std::uint64_t marks[kMaxWords];          // positions of what is rarer: changed members, or others
  std::uint32_t rank[kMaxChunkElements];   // of changes, class after class
  std::uint16_t place[kMaxChunkElements];  // of changes in the chunk, class after class
  std::uint32_t step[kMaxChunkElements];   // of changes, the lowest bits of two's complement
};

enum class Fault : std::uint8_t {
  kNone,
  kTruncated,
  kForm,       // a form that doesn't exist
  kCount,      // more changes than a class has members, or no change at all
  kPosition,   // a position behind the last member
  kStep,       // a step that the element's bits can't make
  kCode,       // a number in a longer code than it needs
  kParameter,  // a Rice parameter that no code has
  kTrailing,   // bytes or bits after the end
};

struct Encoded {
  std::uint32_t bytes = 0;  // 0 if nothing changed
  std::uint64_t from_digest = 0;
  std::uint64_t to_digest = 0;
};

struct Decoded {
  Fault fault = Fault::kNone;
  Form form = Form::kPlain;
  std::uint32_t changes = 0;  // in Scratch: place and step; with kFull 0
};

struct Kernels {
  // Writes the chunk's code to `out`, which has room for full_bytes().
  Encoded (*encode_chunk)(const ChunkView& from, const std::byte* to, std::byte* out, Scratch& scratch);

  // Decodes a chunk against the old weights: leaves places and steps in `scratch`. Any bytes give a result.
  Decoded (*decode_chunk)(const ChunkView& from, const CodedView& coded, Scratch& scratch);

  // Makes the new weights of the old ones at `weights`. REQUIRES: decode_chunk() gave `decoded` without a
  // fault, with the same bits and scratch.
  void (*apply)(const Decoded& decoded, const CodedView& coded, const ChunkView& from, const Scratch& scratch,
                std::byte* weights);

  // Copies bytes, at least one, and returns their digest. REQUIRES: no overlap.
  std::uint64_t (*copy)(const std::byte* from, std::uint64_t bytes, std::byte* to);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

// Bytes of a chunk's full form.
[[gnu::always_inline]] inline std::uint32_t full_bytes(std::uint32_t count, unsigned element_bytes) noexcept {
  return 1 + count * element_bytes;
}

[[gnu::always_inline]] inline std::uint32_t words_of(std::uint32_t count) noexcept {
  return (count + kWordElements - 1) / kWordElements;
}

// What the kernels are made of, in files of their own.
namespace DELTAWIRE_TARGET {

// Both passes can also hash a chunk: that keeps the multiplier busy, and the pass everything else, so that
// both together take hardly longer than one.

struct FoundChanges {
  std::uint32_t count = 0;  // of elements that differ
  std::uint64_t from_digest = 0;
};

// Fills in scratch.changed.
FoundChanges find_changes(const ChunkView& from, const std::byte* to, Scratch& scratch);

// Fills in scratch.members and scratch.ranks of the classes whose bit is set in `active`; returns the digest
// of the chunk at `hashed`, which is as long as `from`, or 0 if that is null.
std::uint64_t find_members(const ChunkView& from, unsigned top, unsigned active, const std::byte* hashed,
                           Scratch& scratch);

Encoded encode_chunk(const ChunkView& from, const std::byte* to, std::byte* out, Scratch& scratch);
Decoded decode_chunk(const ChunkView& from, const CodedView& coded, Scratch& scratch);
void apply(const Decoded& decoded, const CodedView& coded, const ChunkView& from, const Scratch& scratch,
           std::byte* weights);

}  // namespace DELTAWIRE_TARGET

}  // namespace deltawire::patch
