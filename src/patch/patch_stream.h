// Patches within files, made and applied piece by piece, so that a tensor of any size takes the memory of a
// piece. The bytes are those of make_patch().
//
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/disk_file.h"
#include "base/errors.h"
#include "deltawire/patch.h"
#include "patch/patch_coding.h"

namespace deltawire::patch {

// Elements of every piece but a tensor's last: a whole number of chunks of any size.
inline constexpr std::uint64_t kPieceElements = std::uint64_t{64} << kMaxChunkBits;

// Read at once where all bytes are alike.
inline constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMostEntryBytes = 3;  // full_bytes() is below 2^20

inline Status read_whole(int descriptor, std::uint64_t offset, MutBytes out) {
  ASSIGN_OR_RETURN(const auto got, read_at(descriptor, out, offset));
  if (got < out.size()) return truncated("the file ends within the patch: get the rest");
  return {};
}

// Calls each(block, its place) for blocks of the file, in order.
inline Status for_each_block(int descriptor, std::uint64_t offset, std::uint64_t bytes, const auto& each) {
  std::vector<std::byte> block(std::min(bytes, kBlockBytes));
  for (std::uint64_t done = 0; done < bytes; done += block.size()) {
    block.resize(std::min(bytes - done, kBlockBytes));
    RETURN_IF_ERROR(read_whole(descriptor, offset + done, block));
    RETURN_IF_ERROR(each(Bytes(block), offset + done));
  }
  return {};
}

// The most bytes that a new patch of so many weights can have.
inline std::uint64_t most_patch_bytes(std::uint64_t elements, WeightType type) noexcept {
  const std::uint64_t chunks = (elements + kMaxChunkElements - 1) / kMaxChunkElements;
  return kHeadBytes + chunks * (kMostEntryBytes + 1) + elements * weight_bytes(type);
}

// Writes a new patch into a file.
class PatchWriter {
 public:
  // The patch is to begin at `offset`, with most_patch_bytes() free behind it. Errors: those of make_patch().
  static Result<PatchWriter> begin(int descriptor, std::uint64_t offset, std::uint64_t weight_bytes,
                                   WeightType type) {
    ASSIGN_OR_RETURN(const auto head, head_for(weight_bytes, type, kMaxChunkBits));
    return PatchWriter(descriptor, offset, head);
  }

  // The tensor's next piece, and what it becomes. Throws std::bad_alloc. Errors: kIo, without the file's
  // name.
  Status add(Bytes from, Bytes to, const Means& means) {
    assert(from.size() == to.size() && from.size() % weight_bytes(head_.type) == 0);
    Head piece = head_;
    piece.elements = from.size() / weight_bytes(head_.type);
    encode_chunks(piece, from, to, means, builder_, digests_);
    const std::vector<std::byte> codes = builder_.take_payload();
    const Status written = write_at(descriptor_, codes, payload_at() + payload_bytes_);
    payload_bytes_ += codes.size();
    return written;
  }

  // After the last piece: the bytes of the patch. Errors: kIo.
  Result<std::uint64_t> finish() {
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

  const Head& head() const noexcept { return head_; }  // finish() sets the digests

 private:
  PatchWriter(int descriptor, std::uint64_t offset, const Head& head) noexcept
      : descriptor_(descriptor), offset_(offset), head_(head) {}

  // How long the table gets is known at the end.
  std::uint64_t payload_at() const noexcept {
    return offset_ + kHeadBytes + head_.chunks() * kMostEntryBytes;
  }

  Status move_payload(std::uint64_t to, std::uint32_t& checksum) const {
    const std::uint64_t from = payload_at();
    assert(to <= from);
    return for_each_block(descriptor_, from, payload_bytes_, [&](Bytes block, std::uint64_t at) {
      checksum = crc32c(block, checksum);
      return from == to ? Status() : write_at(descriptor_, block, at - (from - to));
    });
  }

  int descriptor_;
  std::uint64_t offset_;
  Head head_;
  PatchBuilder builder_;
  ChunkDigests digests_;
  std::uint64_t payload_bytes_ = 0;
};

// Reads a patch that is in a file.
class StoredPatch {
 public:
  // Checks the checksums and the table. Errors: those of inspect_patch() except those in chunks; kIo.
  static Result<StoredPatch> open(int descriptor, std::uint64_t offset, std::uint64_t bytes) {
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

  StoredPatch(StoredPatch&&) noexcept = default;
  StoredPatch& operator=(StoredPatch&&) noexcept = default;

  const Head& head() const noexcept { return layout_.head; }

  // Takes the tensor's next piece and writes its new weights to `out`, which may be where the old ones are,
  // or only checks them if that is null. Throws std::bad_alloc. Errors: kIo, kTruncated. Other errors wait
  // for finish().
  Status apply(Bytes from, std::byte* out, const Means& means) {
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

  // After the last piece. Errors: those of apply_patch() that only the weights show.
  Status finish() { return check_applied(layout_.head, std::exchange(digests_, {}), decoded_); }

  // Instead of these two: what the patch says about itself. Errors: those of inspect_patch().
  Result<PatchInfo> inspect() {
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

 private:
  StoredPatch(int descriptor, std::uint64_t payload_at, const Layout& layout, std::vector<std::byte> table)
      : descriptor_(descriptor),
        payload_at_(payload_at),
        layout_(layout),
        table_(std::move(table)),
        entries_(table_) {
    has_next_ = entries_.next(next_);
  }

  // Fills in the changed chunks of the next `chunks` chunks, whose codes follow one another in the file.
  Status take_codes(std::uint64_t chunks, std::vector<ChangedChunk>& changed) {
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

  int descriptor_;
  std::uint64_t payload_at_;
  Layout layout_;
  std::vector<std::byte> table_;
  TableReader entries_;
  CodedPlace next_;  // the first place that no piece has taken
  bool has_next_ = false;
  std::uint64_t chunk_ = 0;       // the first one of the next piece
  std::vector<std::byte> codes_;  // of one piece
  ChunkDigests digests_;
  Status decoded_;
};

}  // namespace deltawire::patch
