// Patches with chosen kernels and chunks: what the public calls, and tests of each target, are made of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/lanes.h"
#include "codecs/target_id.h"
#include "deltawire/patch.h"
#include "deltawire/tensor.h"
#include "deltawire/workers.h"
#include "patch/patch_ops.h"
#include "wire/hashes.h"

namespace deltawire::patch {

// The head of a patch and its table of chunks: everything but the chunks' own bits. spec.md has the layout.

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

// A tensor and what its chunks are coded with.
struct Weights {
  Bytes bytes;
  WeightType type = WeightType::kFloat32;
};

struct Means {
  TargetId target = TargetId::kReference;
  Workers* workers = nullptr;
  // Of decoded changes, which apply() in place keeps until all is checked. Chunks beyond are decoded twice.
  std::int64_t kept_bytes = std::int64_t{32} << 20;
};

// The digests of a tensor's chunks, in order.
struct ChunkDigests {
  std::vector<std::uint64_t> from;
  std::vector<std::uint64_t> to;
};

// The head of a patch of the tensor, without digests. Errors: kInvalidArgument, kLimit.
Result<Head> head_for(std::uint64_t weight_bytes, WeightType type, unsigned chunk_bits);

// Codes the chunks of a tensor, or of a piece of one that `head` describes alone; adds to builder and
// digests. Throws std::bad_alloc.
void encode_chunks(const Head& head, Bytes from, Bytes to, const Means& means, PatchBuilder& builder,
                   ChunkDigests& digests);

// The chunks of a tensor, or of a piece of one that `head` describes alone, and what changes in them.
struct CodedChunks {
  Head head;
  std::uint64_t first = 0;            // the number of the first chunk in the tensor
  std::vector<ChangedChunk> changed;  // in order, counted from `first`
  Bytes from;
};

// Writes the chunks' new weights to `out`, which may be where the old ones are, or only checks them if that
// is null, and adds to the digests. Errors: kTruncated, kCorrupt, after which the digests of `from` are there
// nevertheless.
Status decode_chunks(const CodedChunks& chunks, const Means& means, std::byte* out, ChunkDigests& digests);

// What applying the whole patch has led to; `decoded` is the first error of decode_chunks(). Errors: that
// one; kMismatch, kCorrupt.
Status check_applied(const Head& head, const ChunkDigests& digests, const Status& decoded);

// What a head says, and, chunk by chunk, what the changed ones add to it. Errors: kTruncated, kCorrupt.
PatchInfo info_of(const Head& head) noexcept;
Status count_chunk(const ChangedChunk& changed, const Head& head, PatchInfo& info);

// The public functions, for new patches with chunks of 2^chunk_bits elements.
Result<std::vector<std::byte>> make(const Weights& from, Bytes to, unsigned chunk_bits, const Means& means);
Status apply(Bytes patch, const Weights& from, MutBytes out, const Means& means);
Status verify(Bytes patch, const Weights& from, const Means& means);

// The target that deltawire runs on this machine.
Result<TargetId> target_in_use();

// Runs a task for each chunk of a tensor, on several threads.

// The memory of one thread.
struct Workspace {
  Scratch scratch;
  alignas(64) std::byte chunk[kMaxChunkBytes + 64];  // a coded chunk, or one's new weights
};

// Chunks that one thread takes at a time.
inline constexpr std::uint64_t kGroupChunks = 8;

// Calls task(group, workspace) for each group of chunks, with the group's number. Throws std::bad_alloc,
// before any call. REQUIRES: task throws nothing.
void for_each_group(std::uint64_t chunks, Workers* workers, const auto& task) {
  const std::uint64_t groups = ceil_div(chunks, kGroupChunks);
  const auto threads = static_cast<std::uint64_t>(Workers::threads(workers));
  std::vector<std::unique_ptr<Workspace>> workspaces(std::min(groups, threads));
  for (auto& workspace : workspaces) workspace = std::make_unique_for_overwrite<Workspace>();
  share_by_lanes(workers, workspaces.size(), groups, [&](std::size_t lane, std::size_t group) {
    task(group, *workspaces[lane]);
    return true;
  });
}

// The digest of a tensor: of its chunks' digests, so that threads can share the work, and so that who keeps
// them need not read again what hasn't changed.
inline std::uint64_t chunk_digest(Bytes chunk) noexcept {
  return digest64(chunk, 0);
}

// Adds those of weights, or of a piece of them that begins with a chunk, cut into chunks of the usual length.
inline void add_chunk_digests(Bytes weights, WeightType type, Workers* workers,
                              std::vector<std::uint64_t>& digests) {
  const std::uint64_t chunk_bytes = kMaxChunkElements * weight_bytes(type);
  const std::size_t before = digests.size();
  digests.resize(before + ceil_div(weights.size(), chunk_bytes));
  Workers::share(workers, digests.size() - before, [&](std::size_t chunk) {
    const Bytes rest = weights.subspan(chunk * chunk_bytes);
    digests[before + chunk] = chunk_digest(rest.first(std::min<std::size_t>(rest.size(), chunk_bytes)));
  });
}

// Of all chunks' digests in order, as little-endian bytes.
inline std::uint64_t root_digest(const std::vector<std::uint64_t>& digests) noexcept {
  return digest64(std::as_bytes(std::span(digests)), 0);
}

}  // namespace deltawire::patch
