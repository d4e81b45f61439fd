#include "patch/patch_stream.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "base/crc32c.h"
#include "base/disk_file.h"
#include "base/errors.h"

namespace deltawire::patch {

namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;  // read at once where all bytes are alike
constexpr std::uint64_t kMostEntryBytes = 3;                   // full_bytes() is below 2^20

Status read_whole(int descriptor, std::uint64_t offset, MutBytes out) {
  ASSIGN_OR_RETURN(const auto got, read_at(descriptor, out, offset));
  if (got < out.size()) return truncated("the file ends within the patch: get the rest");
  return {};
}

// Calls each(block, its place) for blocks of the file, in order.
Status for_each_block(int descriptor, std::uint64_t offset, std::uint64_t bytes, const auto& each) {
  std::vector<std::byte> block(std::min(bytes, kBlockBytes));
  for (std::uint64_t done = 0; done < bytes; done += block.size()) {
    block.resize(std::min(bytes - done, kBlockBytes));
    RETURN_IF_ERROR(read_whole(descriptor, offset + done, block));
    RETURN_IF_ERROR(each(Bytes(block), offset + done));
  }
  return {};
}

}  // namespace

std::uint64_t most_patch_bytes(std::uint64_t elements, WeightType type) noexcept {
  const std::uint64_t chunks = (elements + kMaxChunkElements - 1) / kMaxChunkElements;
  return kHeadBytes + chunks * (kMostEntryBytes + 1) + elements * weight_bytes(type);
}

PatchWriter::PatchWriter(int descriptor, std::uint64_t offset, const Head& head) noexcept
    : descriptor_(descriptor), offset_(offset), head_(head) {}

Result<PatchWriter> PatchWriter::begin(int descriptor, std::uint64_t offset, std::uint64_t weight_bytes,
                                       WeightType type) {
  ASSIGN_OR_RETURN(const auto head, head_for(weight_bytes, type, kMaxChunkBits));
  return PatchWriter(descriptor, offset, head);
}

// How long the table gets is known at the end.
std::uint64_t PatchWriter::payload_at() const noexcept {
  return offset_ + kHeadBytes + head_.chunks() * kMostEntryBytes;
}

Status PatchWriter::add(Bytes from, Bytes to, const Means& means) {
  assert(from.size() == to.size() && from.size() % weight_bytes(head_.type) == 0);
  Head piece = head_;
  piece.elements = from.size() / weight_bytes(head_.type);
  encode_chunks(piece, from, to, means, builder_, digests_);
  const std::vector<std::byte> codes = builder_.take_payload();
  const Status written = write_at(descriptor_, codes, payload_at() + payload_bytes_);
  payload_bytes_ += codes.size();
  return written;
}

Status PatchWriter::move_payload(std::uint64_t to, std::uint32_t& checksum) const {
  const std::uint64_t from = payload_at();
  assert(to <= from);
  return for_each_block(descriptor_, from, payload_bytes_, [&](Bytes block, std::uint64_t at) {
    checksum = crc32c(block, checksum);
    return from == to ? Status() : write_at(descriptor_, block, at - (from - to));
  });
}

Result<std::uint64_t> PatchWriter::finish() {
  head_.old_root = root_digest(digests_.from);
  head_.new_root = root_digest(digests_.to);
  const Bytes table = builder_.close_table();
  Layout layout{head_, table.size(), payload_bytes_, crc32c(table)};
  RETURN_IF_ERROR(move_payload(offset_ + kHeadBytes + table.size(), layout.body_checksum));
  std::vector<std::byte> front(kHeadBytes + table.size());
  write_head(layout, front.data());
  std::ranges::copy(table, front.begin() + kHeadBytes);
  RETURN_IF_ERROR(write_at(descriptor_, front, offset_));
  return front.size() + payload_bytes_;
}

StoredPatch::StoredPatch(int descriptor, std::uint64_t payload_at, const Layout& layout,
                         std::vector<std::byte> table)
    : descriptor_(descriptor),
      payload_at_(payload_at),
      layout_(layout),
      table_(std::move(table)),
      entries_(table_) {
  has_next_ = entries_.next(next_);
}

Result<StoredPatch> StoredPatch::open(int descriptor, std::uint64_t offset, std::uint64_t bytes) {
  std::array<std::byte, kHeadBytes> head{};
  const MutBytes first(head.data(), std::min<std::uint64_t>(bytes, kHeadBytes));
  RETURN_IF_ERROR(read_whole(descriptor, offset, first));
  ASSIGN_OR_RETURN(const auto layout, read_layout(first, bytes));
  std::uint32_t checksum = 0;
  const Status summed = for_each_block(descriptor, offset + kHeadBytes, bytes - kHeadBytes,
                                       [&](Bytes block, std::uint64_t) -> Status {
                                         checksum = crc32c(block, checksum);
                                         return {};
                                       });
  if (!summed) return forward_error(summed);
  RETURN_IF_ERROR(check_body(layout, checksum));
  std::vector<std::byte> table(layout.table_bytes);
  RETURN_IF_ERROR(read_whole(descriptor, offset + kHeadBytes, table));
  RETURN_IF_ERROR(check_table(layout, table));
  return StoredPatch(descriptor, offset + kHeadBytes + layout.table_bytes, layout, std::move(table));
}

// Fills in the changed chunks of the next `chunks` chunks, whose codes follow one another in the file.
Status StoredPatch::take_codes(std::uint64_t chunks, std::vector<ChangedChunk>& changed) {
  std::vector<CodedPlace> places;
  for (; has_next_ && next_.chunk < chunk_ + chunks; has_next_ = entries_.next(next_)) {
    places.push_back(next_);
  }
  if (places.empty()) return {};
  assert(places.back().begin >= places.front().begin);
  const std::uint64_t begin = places.front().begin;
  codes_.resize(places.back().begin + places.back().bytes - begin);
  RETURN_IF_ERROR(read_whole(descriptor_, payload_at_ + begin, codes_));
  for (const CodedPlace& place : places) {
    changed.push_back({place.chunk - chunk_, Bytes(codes_).subspan(place.begin - begin, place.bytes)});
  }
  return {};
}

Status StoredPatch::apply(Bytes from, std::byte* out, const Means& means) {
  assert(from.size() % weight_bytes(layout_.head.type) == 0);
  CodedChunks piece{layout_.head, chunk_, {}, from};
  piece.head.elements = from.size() / weight_bytes(layout_.head.type);
  RETURN_IF_ERROR(take_codes(piece.head.chunks(), piece.changed));
  assert(chunk_ + piece.head.chunks() <= layout_.head.chunks());
  const Status decoded = decode_chunks(piece, means, out, digests_);
  if (decoded_ && !decoded) decoded_ = decoded;
  chunk_ += piece.head.chunks();
  return {};
}

Status StoredPatch::finish() {
  return check_applied(layout_.head, std::exchange(digests_, {}), decoded_);
}

Result<PatchInfo> StoredPatch::inspect() {
  PatchInfo info = info_of(layout_.head);
  std::vector<ChangedChunk> changed;
  while (chunk_ < layout_.head.chunks()) {
    const std::uint64_t chunks =
        std::min(kPieceElements >> layout_.head.chunk_bits, layout_.head.chunks() - chunk_);
    changed.clear();
    RETURN_IF_ERROR(take_codes(chunks, changed));
    for (ChangedChunk& each : changed) {
      each.chunk += chunk_;
      RETURN_IF_ERROR(count_chunk(each, layout_.head, info));
    }
    chunk_ += chunks;
  }
  return info;
}

}  // namespace deltawire::patch
