// Patches within files, made and applied piece by piece, so that a tensor of any size takes the memory of a
// piece. The bytes are those of make_patch().
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "deltawire/patch.h"
#include "patch/patch_coding.h"

namespace deltawire::patch {

// Elements of every piece but a tensor's last: a whole number of chunks of any size.
inline constexpr std::uint64_t kPieceElements = std::uint64_t{64} << kMaxChunkBits;

// The most bytes that a new patch of so many weights can have.
std::uint64_t most_patch_bytes(std::uint64_t elements, WeightType type) noexcept;

// Writes a new patch into a file.
class PatchWriter {
 public:
  // The patch is to begin at `offset`, with most_patch_bytes() free behind it. Errors: those of make_patch().
  static Result<PatchWriter> begin(int descriptor, std::uint64_t offset, std::uint64_t weight_bytes,
                                   WeightType type);

  // The tensor's next piece, and what it becomes. Throws std::bad_alloc. Errors: kIo, without the file's
  // name.
  Status add(Bytes from, Bytes to, const Means& means);

  // After the last piece: the bytes of the patch. Errors: kIo.
  Result<std::uint64_t> finish();

  const Head& head() const noexcept { return head_; }  // finish() sets the digests

 private:
  PatchWriter(int descriptor, std::uint64_t offset, const Head& head) noexcept;
  std::uint64_t payload_at() const noexcept;
  Status move_payload(std::uint64_t to, std::uint32_t& checksum) const;

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
  static Result<StoredPatch> open(int descriptor, std::uint64_t offset, std::uint64_t bytes);
  StoredPatch(StoredPatch&&) noexcept = default;
  StoredPatch& operator=(StoredPatch&&) noexcept = default;

  const Head& head() const noexcept { return layout_.head; }

  // Takes the tensor's next piece and writes its new weights to `out`, which may be where the old ones are,
  // or only checks them if that is null. Throws std::bad_alloc. Errors: kIo, kTruncated. Other errors wait
  // for finish().
  Status apply(Bytes from, std::byte* out, const Means& means);

  // After the last piece. Errors: those of apply_patch() that only the weights show.
  Status finish();

  // Instead of these two: what the patch says about itself. Errors: those of inspect_patch().
  Result<PatchInfo> inspect();

 private:
  StoredPatch(int descriptor, std::uint64_t payload_at, const Layout& layout, std::vector<std::byte> table);
  Status take_codes(std::uint64_t chunks, std::vector<ChangedChunk>& changed);

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
