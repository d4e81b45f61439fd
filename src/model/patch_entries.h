// What a patch file says: docs/reference/patch-files.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/model_file.h"
#include "patch/patch_stream.h"

namespace deltawire::model {

inline constexpr std::string_view kPatchFormat = "deltawire-patch";
inline constexpr std::string_view kPatchFormatVersion = "1";
// Of files in which tensors that don't change have no entry.
inline constexpr std::string_view kFormatThatLeavesOut = "2";
// A file between models with more tensors in common leaves those out that don't change. Others are of the
// first format, for older readers.
inline constexpr std::size_t kMostUnchangedEntries = 1000;
inline constexpr std::string_view kPatchPrefix = "patch:";
inline constexpr std::string_view kFullPrefix = "full:";
inline constexpr std::string_view kHeaderName = "header";
inline constexpr std::string_view kFileKey = "file";  // of the metadata: the new file's digest

// A patch file whose own text is sound. What its patches hold is not read yet.
class PatchEntries {
 public:
  // Throws std::bad_alloc. Errors, with the path: those of ModelFile::open(); kCorrupt, kUnsupportedVersion.
  static Result<PatchEntries> open(const std::string& path);

  const ModelFile& file() const noexcept { return *file_; }
  ModelFile& file() noexcept { return *file_; }
  const std::string& path() const noexcept { return file_->name(); }
  std::uint64_t old_digest() const noexcept { return old_digest_; }
  std::uint64_t new_digest() const noexcept { return new_digest_; }

  // file_digest() of the new file. Older patch files have none, nor have those of stores.
  std::optional<std::uint64_t> new_file_digest() const noexcept { return new_file_digest_; }

  // Whether the new file's digest has this header; true if there is none.
  bool makes_header(std::string_view json) const;

  // An entry of `metadata`, or "" if it isn't there.
  std::string text(const std::string& key) const;

  // The entries of the tensor, or null.
  const TensorEntry* patch_of(const std::string& tensor_name) const noexcept;
  const TensorEntry* full_of(const std::string& tensor_name) const noexcept;

  // Whether a tensor without an entry is in both models, and the same.
  bool leaves_out_unchanged() const { return text("format_version") == kFormatThatLeavesOut; }

  // Tensors that the file has entries for.
  std::uint64_t tensors() const noexcept;

  // Opens an entry "patch:NAME". Errors, with path and tensor: those of StoredPatch::open().
  Result<patch::StoredPatch> open_patch(const TensorEntry& entry) const;

  // The new model's header, "" if it is the old one's. Throws std::bad_alloc. Errors: kIo, kLimit, kCorrupt.
  Result<std::string> new_header() const;

 private:
  explicit PatchEntries(std::unique_ptr<ModelFile> file) : file_(std::move(file)) {}
  Status read_metadata();
  Status check_names() const;
  Result<std::uint64_t> digest_called(const std::string& key) const;

  std::unique_ptr<ModelFile> file_;
  std::uint64_t old_digest_ = 0;
  std::uint64_t new_digest_ = 0;
  std::optional<std::uint64_t> new_file_digest_;
};

// The name of the tensor that an entry is for; "" for "header".
std::string_view tensor_of(const TensorEntry& entry) noexcept;

}  // namespace deltawire::model
