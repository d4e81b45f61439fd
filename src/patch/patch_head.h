// The head of a patch and its table of chunks: everything but the chunks' own bits. spec.md has the layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deltawire/patch.h"
#include "patch/patch_ops.h"

namespace deltawire::patch {

struct Head {
  WeightType type = WeightType::kFloat32;
  unsigned chunk_bits = kMaxChunkBits;
  std::uint64_t elements = 0;
  std::uint64_t old_root = 0;
  std::uint64_t new_root = 0;

  std::uint32_t chunk_elements() const noexcept { return 1U << chunk_bits; }
  std::uint64_t chunks() const noexcept { return (elements + chunk_elements() - 1) >> chunk_bits; }

  // REQUIRES: chunk < chunks().
  std::uint32_t count_of(std::uint64_t chunk) const noexcept;
};

// A patch whose checksums are right and whose table covers the tensor.
struct OpenPatch {
  Head head;
  Bytes table;
  Bytes payload;
};

// A changed chunk and its bits.
struct ChangedChunk {
  std::uint64_t chunk = 0;
  Bytes coded;
};

// Errors: kTruncated, kCorrupt, kUnsupportedVersion, kLimit.
Result<OpenPatch> open_patch(Bytes patch);

// Takes the changed chunks out of a table, one after another. REQUIRES: open_patch() returned it.
class TableReader {
 public:
  explicit TableReader(const OpenPatch& patch) noexcept : table_(patch.table), payload_(patch.payload) {}

  // Whether there was one more.
  bool next(ChangedChunk& changed) noexcept;

 private:
  Bytes table_;
  Bytes payload_;
  std::uint64_t chunk_ = 0;
};

// Collects the chunks of a patch, in order.
class PatchBuilder {
 public:
  void add_unchanged() noexcept { ++unchanged_; }
  void add(Bytes coded);

  // The whole patch.
  std::vector<std::byte> finish(const Head& head);

 private:
  void close_run();

  std::vector<std::byte> table_;
  std::vector<std::byte> payload_;
  std::uint64_t unchanged_ = 0;
};

// How an element of the type is divided; no bytes for a number outside the enum.
Element element_of(WeightType type) noexcept;

// An error's text for a chunk that can't be decoded.
Error chunk_error(Fault fault, std::uint64_t chunk);

}  // namespace deltawire::patch
