// Applying patches: the checks of the whole patch, then the writes.
#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <new>

#include "base/errors.h"
#include "base/little_endian.h"
#include "patch/patch_coding.h"
#include "patch/patch_ops.h"

namespace deltawire::patch {

namespace {

// What decoding has found in a chunk, kept so that it can be written later, when the whole patch is known to
// be sound, without decoding again: the places and new patterns of a chunk's changes: first all places, then
// all patterns.
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

Bytes chunk_of(const CodedChunks& chunks, std::uint64_t chunk) noexcept {
  assert(chunk < chunks.head.chunks());
  const std::uint64_t element_bytes = element_of(chunks.head.type).bytes;
  return chunks.from.subspan((chunk << chunks.head.chunk_bits) * element_bytes,
                             chunks.head.count_of(chunk) * element_bytes);
}

// The first chunk that a thread found to be at fault.
class FirstFault {
 public:
  void found(Fault fault, std::uint64_t chunk) noexcept {
    std::uint64_t before = worst_.load();
    const std::uint64_t now = chunk << 8 | static_cast<std::uint64_t>(fault);
    while (now < before && !worst_.compare_exchange_weak(before, now)) {
    }
  }
  // `first` is the number of the first chunk.
  Status status(std::uint64_t first) const {
    const std::uint64_t worst = worst_.load();
    if (worst == UINT64_MAX) return {};
    return tl::unexpected<Error>(chunk_error(static_cast<Fault>(worst & 0xFF), first + (worst >> 8)));
  }

 private:
  std::atomic<std::uint64_t> worst_ = UINT64_MAX;
};

std::string in_hexadecimal(std::uint64_t digest) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(digest));
  return text;
}

Result<CodedChunks> open(Bytes patch, const Weights& from) {
  const std::uint64_t element_bytes = weight_bytes(from.type);
  if (element_bytes == 0) {
    return invalid("no weights have the type " + std::to_string(static_cast<unsigned>(from.type)));
  }
  ASSIGN_OR_RETURN(const auto opened, open_patch(patch));
  const Head& head = opened.head;
  if (head.type != from.type || head.elements * element_bytes != from.bytes.size()) {
    return mismatch("the patch is for " + std::to_string(head.elements) + " weights of type " +
                    std::string(weight_type_name(head.type)) + ", not for these " +
                    std::to_string(from.bytes.size()) + " bytes of " +
                    std::string(weight_type_name(from.type)) + ": get the patch of this tensor");
  }
  CodedChunks chunks{head, 0, {}, from.bytes};
  TableReader table(opened.table);
  for (CodedPlace place; table.next(place);) {
    chunks.changed.push_back({place.chunk, opened.payload.subspan(place.begin, place.bytes)});
  }
  return chunks;
}

// Calls each(chunk, changed, workspace) for every chunk, on the caller's threads; `changed` is null where the
// chunk is not among chunks.changed.
void for_each_chunk(const CodedChunks& chunks, Workers* workers, const auto& each) {
  for_each_group(chunks.head.chunks(), workers, [&](std::uint64_t group, Workspace& workspace) {
    const std::uint64_t begin = group * kGroupChunks;
    const std::uint64_t end = std::min(begin + kGroupChunks, chunks.head.chunks());
    auto at = std::ranges::lower_bound(chunks.changed, begin, {}, &ChangedChunk::chunk);
    for (std::uint64_t chunk = begin; chunk < end; ++chunk) {
      const bool changes = at != chunks.changed.end() && at->chunk == chunk;
      each(chunk, changes ? &*at++ : nullptr, workspace);
    }
  });
}

// decode_chunks(), which hands each changed chunk to `take` after its new weights were made, with what was
// decoded and where they are. Full ones aren't taken.
Status decode_each(const CodedChunks& chunks, const Means& means, std::byte* out, ChunkDigests& digests,
                   const auto& take) {
  const Element element = element_of(chunks.head.type);
  const Kernels& kernels = kernels_for(means.target);
  const std::size_t before = digests.from.size();
  digests.from.resize(before + chunks.head.chunks());
  digests.to.resize(before + chunks.head.chunks());
  std::uint64_t* const from_digests = digests.from.data() + before;
  std::uint64_t* const to_digests = digests.to.data() + before;
  FirstFault first;
  const auto each = [&](std::uint64_t chunk, const ChangedChunk* changed, Workspace& workspace) {
    const Bytes from = chunk_of(chunks, chunk);
    std::byte* to = out == nullptr ? nullptr : out + (from.data() - chunks.from.data());
    if (to == nullptr && changed != nullptr) to = workspace.chunk;
    const bool moves = to != nullptr && to != from.data();
    from_digests[chunk] = moves ? kernels.copy(from.data(), from.size(), to) : chunk_digest(from);
    to_digests[chunk] = from_digests[chunk];
    if (changed == nullptr) return;
    const ChunkView view{from.data(), chunks.head.count_of(chunk), element};
    const CodedView code{changed->coded.data(), changed->coded.size()};
    const Decoded decoded = kernels.decode_chunk(view, code, workspace.scratch);
    if (decoded.fault != Fault::kNone) return first.found(decoded.fault, chunk);
    kernels.apply(decoded, code, view, workspace.scratch, to);
    to_digests[chunk] = chunk_digest(Bytes(to, from.size()));
    if (decoded.form != Form::kFull) take(*changed, decoded, workspace.scratch, to);
  };
  for_each_chunk(chunks, means.workers, each);
  return first.status(chunks.first);
}

Status run(const CodedChunks& chunks, const Means& means, std::byte* out) {
  ChunkDigests digests;
  const Status decoded = decode_chunks(chunks, means, out, digests);
  return check_applied(chunks.head, digests, decoded);
}

// Decodes all chunks and checks everything; writes only then what was kept, and decodes the rest again.
Status run_in_place(const CodedChunks& chunks, const Means& means, MutBytes weights) {
  const Element element = element_of(chunks.head.type);
  std::vector<KeptChanges> kept(chunks.changed.size());
  const auto kept_of = [&](const ChangedChunk& changed) -> KeptChanges& {
    return kept[static_cast<std::size_t>(&changed - chunks.changed.data())];
  };
  std::atomic<std::int64_t> room = means.kept_bytes;
  ChunkDigests digests;
  const Status decoded = decode_each(
      chunks, means, nullptr, digests,
      [&](const ChangedChunk& changed, const Decoded& found, const Scratch& scratch, const std::byte* to) {
        kept_of(changed).keep(found.changes, scratch, to, element.bytes, room);
      });
  RETURN_IF_ERROR(check_applied(chunks.head, digests, decoded));
  const Kernels& kernels = kernels_for(means.target);
  FirstFault first;
  const auto write = [&](std::uint64_t chunk, const ChangedChunk* changed, Workspace& workspace) {
    if (changed == nullptr) return;
    const Bytes from = chunk_of(chunks, chunk);
    std::byte* const to = weights.data() + (from.data() - chunks.from.data());
    if (kept_of(*changed).has_some()) return kept_of(*changed).write(to, element.bytes);
    const ChunkView view{from.data(), chunks.head.count_of(chunk), element};
    const CodedView code{changed->coded.data(), changed->coded.size()};
    const Decoded again = kernels.decode_chunk(view, code, workspace.scratch);
    if (again.fault != Fault::kNone) return first.found(again.fault, chunk);
    kernels.apply(again, code, view, workspace.scratch, to);
  };
  for_each_chunk(chunks, means.workers, write);
  return first.status(0);
}

bool overlap(Bytes a, Bytes b) noexcept {
  const std::less<const std::byte*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

}  // namespace

Status decode_chunks(const CodedChunks& chunks, const Means& means, std::byte* out, ChunkDigests& digests) {
  return decode_each(chunks, means, out, digests, [](const auto&...) {});
}

Status check_applied(const Head& head, const ChunkDigests& digests, const Status& decoded) {
  // From other weights than its own, a sound patch may look broken.
  const std::uint64_t old_root = root_digest(digests.from);
  if (old_root != head.old_root) {
    return mismatch("the patch was made from weights with the digest " + in_hexadecimal(head.old_root) +
                    "; these have " + in_hexadecimal(old_root) + ": get the patch from this version");
  }
  if (!decoded) return decoded;
  if (root_digest(digests.to) != head.new_root) {
    return corrupt("the patch does not make the weights that it was made for, with the digest " +
                   in_hexadecimal(head.new_root) + ": get the patch again");
  }
  return {};
}

Status apply(Bytes patch, const Weights& from, MutBytes out, const Means& means) {
  const bool in_place = out.data() == from.bytes.data();
  if (out.size() != from.bytes.size() || (!in_place && overlap(out, from.bytes))) {
    return invalid("the new weights need as many bytes as the old ones, the same or none of theirs");
  }
  ASSIGN_OR_RETURN(const auto chunks, open(patch, from));
  if (!in_place) return run(chunks, means, out.data());
  return run_in_place(chunks, means, out);
}

Status verify(Bytes patch, const Weights& from, const Means& means) {
  ASSIGN_OR_RETURN(const auto chunks, open(patch, from));
  return run(chunks, means, nullptr);
}

}  // namespace deltawire::patch
