// The model that a patch file makes of another one, tensor by tensor as it is read.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/safetensors.h"
#include "model/model.h"
#include "patch/patch_stream.h"

namespace deltawire::model {

// What the header of a patch file says of the whole: docs/reference/patch-files.md.

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

struct PatchHead {
  std::uint64_t old_digest = 0;
  std::uint64_t new_digest = 0;
  std::optional<std::uint64_t>
      new_file_digest;                // file_digest(); older files have none, nor have those of stores
  bool leaves_out_unchanged = false;  // a tensor without an entry is in both models, and the same
};

// Errors, without the file's name: kCorrupt, kUnsupportedVersion.
Result<PatchHead> read_patch_head(const ModelHeader& header);

// An entry of the header's `metadata`, or "" if it isn't there.
std::string text_of(const ModelHeader& header, std::string_view key);

// Of a patch, or a header.
ModelTensor row_of_bytes(std::string name, std::uint64_t bytes);

// The name of the tensor that an entry is for; "" for "header".
std::string_view tensor_of(const ModelTensor& entry) noexcept;

// What a patch file says (docs/reference/patch-files.md), one whose own text is sound. What its
// patches hold is not read yet.
class PatchEntries {
 public:
  // Throws std::bad_alloc. Errors, with the path: those of ModelFile::open(); kCorrupt, kUnsupportedVersion.
  static Result<PatchEntries> open(const std::string& path);

  const ModelFile& file() const noexcept { return *file_; }
  ModelFile& file() noexcept { return *file_; }
  const std::string& path() const noexcept { return file_->name(); }
  const PatchHead& head() const noexcept { return head_; }

  // Whether the new file's digest has this header; true if there is none.
  bool makes_header(std::string_view json) const {
    return !head_.new_file_digest || file_digest(json, head_.new_digest) == *head_.new_file_digest;
  }

  std::string text(std::string_view key) const { return text_of(file_->header(), key); }

  // The entries of the tensor, or null.
  const ModelTensor* patch_of(const std::string& tensor_name) const noexcept;
  const ModelTensor* full_of(const std::string& tensor_name) const noexcept;

  // Tensors that the file has entries for.
  std::uint64_t tensors() const noexcept;

  // Opens an entry "patch:NAME". Errors, with path and tensor: those of StoredPatch::open().
  Result<patch::StoredPatch> open_patch(const ModelTensor& entry) const;

  // The new model's header, "" if it is the old one's. Throws std::bad_alloc. Errors: kIo, kLimit, kCorrupt.
  Result<std::string> new_header() const;

 private:
  explicit PatchEntries(std::unique_ptr<ModelFile> file) : file_(std::move(file)) {}

  std::unique_ptr<ModelFile> file_;
  PatchHead head_;
};

class PatchedModel final : public Model {
 public:
  // Checks that entries, old and new header fit together. Throws std::bad_alloc. Errors: kMismatch if the
  // patch is for another model, kCorrupt, and those of PatchEntries::new_header() and read_model_header().
  static Result<std::unique_ptr<PatchedModel>> make(std::unique_ptr<Model> from, PatchEntries entries,
                                                    const Work& work);

  const std::string& name() const noexcept override { return entries_.path(); }
  const ModelHeader& header() const noexcept override { return header_; }
  const std::string& header_json() const noexcept override { return json_; }
  Result<std::unique_ptr<TensorReader>> open(const ModelTensor& tensor) override;

  // The digest of a tensor of header(), which was read to its end.
  void learn(const ModelTensor& tensor, std::uint64_t digest);

  // After every tensor was read to its end: whether the model below is the one that the patch was made from.
  // Reads those of its tensors that were not needed. Errors: kMismatch and those of reading.
  Status check_from();

  const PatchEntries& entries() const noexcept { return entries_; }

 private:
  class PatchedTensor;

  PatchedModel(std::unique_ptr<Model> from, PatchEntries entries, const Work& work)
      : from_(std::move(from)), entries_(std::move(entries)), work_(work) {}
  Status read_headers();
  Status check_entries() const;
  Status check_header() const;
  Status check_entry(const ModelTensor& tensor) const;
  bool has_entry(const ModelTensor& tensor) const noexcept {
    return entries_.full_of(tensor.name) != nullptr || entries_.patch_of(tensor.name) != nullptr;
  }
  std::optional<std::uint64_t>& from_digest(const ModelTensor& from) noexcept {
    assert(from_digests_.size() == from_->header().tensors.size());
    return from_digests_[static_cast<std::size_t>(&from - from_->header().tensors.data())];
  }

  std::unique_ptr<Model> from_;
  PatchEntries entries_;
  Work work_;
  std::string json_;
  ModelHeader header_;
  std::vector<std::optional<std::uint64_t>> from_digests_;  // in the order of from_'s tensors
};

// kCorrupt, if a model's digest is not the one that the patch file has for the new model.
Status check_new_digest(const PatchEntries& entries, std::uint64_t digest);

}  // namespace deltawire::model
