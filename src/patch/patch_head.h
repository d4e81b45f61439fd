// The head of a patch and its table of chunks: everything but the chunks' own bits. spec.md has the layout.
#pragma once

#include <cstdint>
#include <utility>
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

  std::uint32_t count_of(std::uint64_t chunk) const noexcept;
};

// Bytes of a patch before its table.
inline constexpr std::size_t kHeadBytes = 56;

// A head and the bytes that it says follow.
struct Layout {
  Head head;
  std::uint64_t table_bytes = 0;
  std::uint64_t payload_bytes = 0;
  std::uint32_t body_checksum = 0;  // of the table and the payload
};

// Reads the head of a patch of `patch_bytes` bytes, of which `first` are the first: all of them, or at least
// kHeadBytes. Errors: kTruncated, kCorrupt, kUnsupportedVersion, kLimit.
Result<Layout> read_layout(Bytes first, std::uint64_t patch_bytes);

// kCorrupt, if `checksum` is not the body's.
Status check_body(const Layout& layout, std::uint32_t checksum);

// Whether the entries cover all chunks and all bytes of the payload. Errors: kCorrupt.
Status check_table(const Layout& layout, Bytes table);

// A patch whose checksums are right and whose table covers the tensor.
struct OpenPatch {
  Head head;
  Bytes table;
  Bytes payload;
};

// Where the payload has the bits of a changed chunk.
struct CodedPlace {
  std::uint64_t chunk = 0;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

// A changed chunk and its bits.
struct ChangedChunk {
  std::uint64_t chunk = 0;
  Bytes coded;
};

// Errors: kTruncated, kCorrupt, kUnsupportedVersion, kLimit.
Result<OpenPatch> open_patch(Bytes patch);

// Takes the changed chunks out of a table in which check_table() found nothing, one after another. The table
// outlives this.
class TableReader {
 public:
  explicit TableReader(Bytes table) noexcept : table_(table) {}

  // Whether there was one more.
  bool next(CodedPlace& place) noexcept;

 private:
  Bytes table_;
  std::uint64_t chunk_ = 0;
  std::uint64_t begin_ = 0;
};

// Collects the chunks of a patch, in order.
class PatchBuilder {
 public:
  void add_unchanged() noexcept { ++unchanged_; }
  void add(Bytes coded);

  // The whole patch.
  std::vector<std::byte> finish(const Head& head);

  // For who takes the payload away as it grows: what was added since the last call,
  std::vector<std::byte> take_payload() noexcept { return std::exchange(payload_, {}); }
  // and, after the last chunk, the table.
  Bytes close_table();

 private:
  void close_run();

  std::vector<std::byte> table_;
  std::vector<std::byte> payload_;
  std::uint64_t unchanged_ = 0;
};

// Writes the kHeadBytes bytes of a patch's head to `out`.
void write_head(const Layout& layout, std::byte* out) noexcept;

// How an element of the type is divided; no bytes for a number outside the enum.
Element element_of(WeightType type) noexcept;

// An error's text for a chunk that can't be decoded.
Error chunk_error(Fault fault, std::uint64_t chunk);

}  // namespace deltawire::patch
