// Making patches, and what they say about themselves.
#include <atomic>
#include <cassert>
#include <new>

#include "base/bits.h"
#include "base/errors.h"
#include "patch/patch_codes_ops.h"
#include "patch/patch_coding.h"

namespace deltawire {

namespace patch {

namespace {

// The coded chunks of a group, one after another; unchanged ones have no bytes.
struct CodedGroup {
  std::vector<std::byte> bytes;
  std::uint32_t ends[kGroupChunks] = {};
};

struct Making {
  const Head& head;
  Bytes from;
  Bytes to;
  const Kernels& kernels;
  std::uint64_t* from_digests;
  std::uint64_t* to_digests;
  std::vector<CodedGroup> groups;
};

// Throws std::bad_alloc.
void encode_group(Making& making, std::uint64_t group, Workspace& workspace) {
  assert(group < making.groups.size());
  const Element element = element_of(making.head.type);
  CodedGroup& coded = making.groups[group];
  for (std::uint64_t i = 0; i < kGroupChunks; ++i) {
    const std::uint64_t chunk = group * kGroupChunks + i;
    if (chunk >= making.head.chunks()) break;
    const std::uint32_t count = making.head.count_of(chunk);
    const std::uint64_t begin = (chunk << making.head.chunk_bits) * element.bytes;
    const Bytes from = making.from.subspan(begin, std::uint64_t{count} * element.bytes);
    const Bytes to = making.to.subspan(begin, from.size());
    const Encoded encoded = making.kernels.encode_chunk({from.data(), count, element}, to.data(),
                                                        workspace.chunk, workspace.scratch);
    assert(encoded.bytes <= sizeof workspace.chunk);
    making.from_digests[chunk] = encoded.from_digest;
    making.to_digests[chunk] = encoded.to_digest;
    coded.bytes.insert(coded.bytes.end(), workspace.chunk, workspace.chunk + encoded.bytes);
    coded.ends[i] = static_cast<std::uint32_t>(coded.bytes.size());
  }
}

void add_codes(const Making& making, PatchBuilder& builder) {
  for (std::uint64_t chunk = 0; chunk < making.head.chunks(); ++chunk) {
    const CodedGroup& group = making.groups[chunk / kGroupChunks];
    const std::uint64_t i = chunk % kGroupChunks;
    const std::uint32_t begin = i == 0 ? 0 : group.ends[i - 1];
    assert(begin <= group.ends[i]);
    if (group.ends[i] == begin) {
      builder.add_unchanged();
    } else {
      builder.add(Bytes(group.bytes).subspan(begin, group.ends[i] - begin));
    }
  }
}

// How many elements a chunk changes, by its own word, which may be wrong: without the old weights nobody
// knows.
Fault count_changes(Bytes coded, std::uint32_t elements, PatchInfo& info) noexcept {
  BitWindow in{coded.data(), coded.size()};
  const auto form = static_cast<Form>(in.peek() & ((1U << kFormBits) - 1));
  in.position += kFormBits;
  if (form == Form::kFull) {
    ++info.full_chunks;
    const std::uint64_t bytes = full_bytes(elements, element_of(info.type).bytes);
    if (coded.size() < bytes) return Fault::kTruncated;
    return coded.size() > bytes ? Fault::kTrailing : Fault::kNone;
  }
  if (form != Form::kPlain && form != Form::kByClass) return Fault::kForm;
  if (form == Form::kByClass) in.position += 8;
  std::uint64_t changes = 0;
  Fault fault = Fault::kNone;
  Before before{};
  for (unsigned c = 0; c < (form == Form::kByClass ? kClasses : 1); ++c) {
    changes += get_count(in, before.width, fault);
  }
  if (in.exhausted()) return Fault::kTruncated;
  if (fault == Fault::kNone && (changes == 0 || changes > elements)) fault = Fault::kCount;
  info.changes += changes;
  return fault;
}

}  // namespace

Result<Head> head_for(std::uint64_t bytes, WeightType type, unsigned chunk_bits) {
  const std::uint64_t element_bytes = weight_bytes(type);
  if (element_bytes == 0) {
    return invalid("no weights have the type " + std::to_string(static_cast<unsigned>(type)));
  }
  if (bytes % element_bytes != 0) {
    return invalid(std::to_string(bytes) + " bytes are no whole number of weights of type " +
                   std::string(weight_type_name(type)) + ", which have " + std::to_string(element_bytes));
  }
  if (bytes / element_bytes > kPatchMaxElements) {
    return fail(ErrorCode::kLimit, "the tensor has more than 2^40 weights: cut it");
  }
  Head head;
  head.type = type;
  head.chunk_bits = chunk_bits;
  head.elements = bytes / element_bytes;
  return head;
}

void encode_chunks(const Head& head, Bytes from, Bytes to, const Means& means, PatchBuilder& builder,
                   ChunkDigests& digests) {
  const std::uint64_t chunks = head.chunks();
  assert(from.size() == to.size() && from.size() == head.elements * weight_bytes(head.type));
  const std::size_t before = digests.from.size();
  digests.from.resize(before + chunks);
  digests.to.resize(before + chunks);
  Making making{head,
                from,
                to,
                kernels_for(means.target),
                digests.from.data() + before,
                digests.to.data() + before,
                std::vector<CodedGroup>((chunks + kGroupChunks - 1) / kGroupChunks)};
  std::atomic<bool> no_room = false;
  for_each_group(chunks, means.workers, [&](std::uint64_t group, Workspace& workspace) {
    try {
      encode_group(making, group, workspace);
    } catch (const std::bad_alloc&) {
      no_room = true;
    }
  });
  if (no_room) throw std::bad_alloc();
  add_codes(making, builder);
}

Result<std::vector<std::byte>> make(const Weights& from, Bytes to, unsigned chunk_bits, const Means& means) {
  ASSIGN_OR_RETURN(auto head, head_for(from.bytes.size(), from.type, chunk_bits));
  if (to.size() != from.bytes.size()) {
    return invalid("the old weights have " + std::to_string(from.bytes.size()) + " bytes, the new ones " +
                   std::to_string(to.size()) + ": a patch is between tensors of one shape");
  }
  PatchBuilder builder;
  ChunkDigests digests;
  encode_chunks(head, from.bytes, to, means, builder, digests);
  head.old_root = root_digest(digests.from);
  head.new_root = root_digest(digests.to);
  return builder.finish(head);
}

PatchInfo info_of(const Head& head) noexcept {
  PatchInfo info;
  info.type = head.type;
  info.elements = head.elements;
  info.chunk_elements = head.chunk_elements();
  info.chunks = head.chunks();
  info.old_digest = head.old_root;
  info.new_digest = head.new_root;
  return info;
}

Status count_chunk(const ChangedChunk& changed, const Head& head, PatchInfo& info) {
  ++info.changed_chunks;
  const Fault fault = count_changes(changed.coded, head.count_of(changed.chunk), info);
  if (fault == Fault::kNone) return {};
  return tl::unexpected<Error>(chunk_error(fault, changed.chunk));
}

}  // namespace patch

Result<std::uint64_t> weights_digest(Bytes weights, WeightType type, Workers* workers) {
  return or_no_memory("hashing weights", [&]() -> Result<std::uint64_t> {
    RETURN_IF_ERROR(patch::head_for(weights.size(), type, patch::kMaxChunkBits));
    std::vector<std::uint64_t> digests;
    patch::add_chunk_digests(weights, type, workers, digests);
    return patch::root_digest(digests);
  });
}

Result<PatchInfo> inspect_patch(Bytes patch) {
  ASSIGN_OR_RETURN(const auto open, patch::open_patch(patch));
  PatchInfo info = patch::info_of(open.head);
  patch::TableReader table(open.table);
  for (patch::CodedPlace place; table.next(place);) {
    const patch::ChangedChunk changed{place.chunk, open.payload.subspan(place.begin, place.bytes)};
    RETURN_IF_ERROR(patch::count_chunk(changed, open.head, info));
  }
  return info;
}

}  // namespace deltawire
