// Patches with chosen kernels and chunks: what the public calls, and tests of each target, are made of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/checked.h"
#include "base/lanes.h"
#include "codecs/target_id.h"
#include "deltawire/patch.h"
#include "deltawire/tensor.h"
#include "deltawire/workers.h"
#include "patch/patch_head.h"
#include "patch/patch_ops.h"
#include "wire/hashes.h"

namespace deltawire::patch {

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
