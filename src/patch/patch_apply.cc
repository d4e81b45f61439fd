// Applying patches: the checks of the whole patch, then the writes.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>

#include "patch/chunk_walk.h"
#include "patch/patch_coding.h"
#include "patch/patch_digest.h"

namespace deltawire::patch {

namespace {

struct Applying {
  Head head;
  std::vector<ChangedChunk> changed;  // in order
  Bytes from;
  const Kernels& kernels;
  Workers* workers;

  Bytes chunk_of(std::uint64_t chunk) const noexcept {
    const Element element = element_of(head.type);
    const std::uint64_t begin = (chunk << head.chunk_bits) * element.bytes;
    return from.subspan(begin, std::uint64_t{head.count_of(chunk)} * element.bytes);
  }
};

// The first chunk that a thread found to be at fault.
class FirstFault {
 public:
  void found(Fault fault, std::uint64_t chunk) noexcept {
    std::uint64_t before = worst_.load();
    const std::uint64_t now = chunk << 8 | static_cast<std::uint64_t>(fault);
    while (now < before && !worst_.compare_exchange_weak(before, now)) {
    }
  }
  Status status() const {
    const std::uint64_t worst = worst_.load();
    if (worst == UINT64_MAX) return {};
    return tl::unexpected<Error>(chunk_error(static_cast<Fault>(worst & 0xFF), worst >> 8));
  }

 private:
  std::atomic<std::uint64_t> worst_ = UINT64_MAX;
};

std::string in_hexadecimal(std::uint64_t digest) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(digest));
  return text;
}

Result<Applying> open(Bytes patch, const Weights& from, const Means& means) {
  const std::uint64_t element_bytes = weight_bytes(from.type);
  if (element_bytes == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "no weights have the type " + std::to_string(static_cast<unsigned>(from.type)));
  }
  const auto opened = open_patch(patch);
  if (!opened) return forward_error(opened);
  const Head& head = opened->head;
  if (head.type != from.type || head.elements * element_bytes != from.bytes.size()) {
    return fail(ErrorCode::kMismatch, "the patch is for " + std::to_string(head.elements) +
                                          " weights of type " + std::string(weight_type_name(head.type)) +
                                          ", not for these " + std::to_string(from.bytes.size()) +
                                          " bytes of " + std::string(weight_type_name(from.type)) +
                                          ": get the patch of this tensor");
  }
  Applying applying{head, {}, from.bytes, kernels_for(means.target), means.workers};
  TableReader table(*opened);
  for (ChangedChunk changed; table.next(changed);) applying.changed.push_back(changed);
  return applying;
}

// Calls each(chunk, coded, workspace) for every chunk, on the caller's threads; unchanged ones have no code.
template <class Each>
void for_each_chunk(const Applying& applying, const Each& each) {
  for_each_group(applying.head.chunks(), applying.workers, [&](std::uint64_t group, Workspace& workspace) {
    const std::uint64_t begin = group * kGroupChunks;
    const std::uint64_t end = std::min(begin + kGroupChunks, applying.head.chunks());
    auto at = std::ranges::lower_bound(applying.changed, begin, {}, &ChangedChunk::chunk);
    for (std::uint64_t chunk = begin; chunk < end; ++chunk) {
      const bool changes = at != applying.changed.end() && at->chunk == chunk;
      each(chunk, changes ? (at++)->coded : Bytes{}, workspace);
    }
  });
}

// Makes the new weights of all chunks where place(chunk, workspace) says, and checks old and new digests.
template <class Place>
Status run(const Applying& applying, const Place& place) {
  const Element element = element_of(applying.head.type);
  std::vector<std::uint64_t> old_digests(applying.head.chunks());
  std::vector<std::uint64_t> new_digests(applying.head.chunks());
  FirstFault first;
  for_each_chunk(applying, [&](std::uint64_t chunk, Bytes coded, Workspace& workspace) {
    const Bytes from = applying.chunk_of(chunk);
    old_digests[chunk] = chunk_digest(from);
    new_digests[chunk] = old_digests[chunk];
    std::byte* to = place(chunk, !coded.empty(), workspace);
    if (to == nullptr) return;
    if (coded.empty()) {
      std::memcpy(to, from.data(), from.size());
      return;
    }
    const ChunkView view{from.data(), applying.head.count_of(chunk), element};
    const CodedView code{coded.data(), coded.size()};
    const Decoded decoded = applying.kernels.decode_chunk(view, code, workspace.scratch);
    if (decoded.fault != Fault::kNone) return first.found(decoded.fault, chunk);
    if (decoded.form != Form::kFull) std::memcpy(to, from.data(), from.size());
    applying.kernels.apply(decoded, code, view, workspace.scratch, to);
    new_digests[chunk] = chunk_digest(Bytes(to, from.size()));
  });
  // From other weights than its own, a sound patch may look broken.
  const std::uint64_t old_root = root_digest(std::move(old_digests));
  if (old_root != applying.head.old_root) {
    return fail(ErrorCode::kMismatch, "the patch was made from weights with the digest " +
                                          in_hexadecimal(applying.head.old_root) + "; these have " +
                                          in_hexadecimal(old_root) + ": get the patch from this version");
  }
  if (const Status sound = first.status(); !sound) return sound;
  if (root_digest(std::move(new_digests)) != applying.head.new_root) {
    return fail(ErrorCode::kCorrupt,
                "the patch does not make the weights that it was made for, with the digest " +
                    in_hexadecimal(applying.head.new_root) + ": get the patch again");
  }
  return {};
}

Status check(const Applying& applying) {
  return run(applying, [](std::uint64_t, bool changed, Workspace& workspace) {
    return changed ? workspace.chunk : nullptr;
  });
}

// REQUIRES: check() found nothing.
Status write_in_place(const Applying& applying, MutBytes weights) {
  const Element element = element_of(applying.head.type);
  FirstFault first;
  for_each_chunk(applying, [&](std::uint64_t chunk, Bytes coded, Workspace& workspace) {
    if (coded.empty()) return;
    const Bytes from = applying.chunk_of(chunk);
    const ChunkView view{from.data(), applying.head.count_of(chunk), element};
    const CodedView code{coded.data(), coded.size()};
    const Decoded decoded = applying.kernels.decode_chunk(view, code, workspace.scratch);
    if (decoded.fault != Fault::kNone) return first.found(decoded.fault, chunk);
    applying.kernels.apply(decoded, code, view, workspace.scratch,
                           weights.data() + (from.data() - applying.from.data()));
  });
  return first.status();
}

bool overlap(Bytes a, Bytes b) noexcept {
  const std::less<const std::byte*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

}  // namespace

Status apply(Bytes patch, const Weights& from, MutBytes out, const Means& means) {
  const bool in_place = out.data() == from.bytes.data();
  if (out.size() != from.bytes.size() || (!in_place && overlap(out, from.bytes))) {
    return fail(ErrorCode::kInvalidArgument,
                "the new weights need as many bytes as the old ones, the same or none of theirs");
  }
  const auto applying = open(patch, from, means);
  if (!applying) return forward_error(applying);
  if (in_place) {
    if (const Status sound = check(*applying); !sound) return sound;
    return write_in_place(*applying, out);
  }
  const std::uint64_t chunk_bytes = applying->head.chunk_elements() * weight_bytes(from.type);
  return run(*applying,
             [&](std::uint64_t chunk, bool, Workspace&) { return out.data() + chunk * chunk_bytes; });
}

Status verify(Bytes patch, const Weights& from, const Means& means) {
  const auto applying = open(patch, from, means);
  if (!applying) return forward_error(applying);
  return check(*applying);
}

}  // namespace deltawire::patch
