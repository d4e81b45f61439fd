// What a patch file says: docs/reference/patch-files.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/model_file.h"
#include "model/patch_head.h"
#include "patch/patch_stream.h"

namespace deltawire::model {

// A patch file whose own text is sound. What its patches hold is not read yet.
class PatchEntries {
 public:
  // Throws std::bad_alloc. Errors, with the path: those of ModelFile::open(); kCorrupt, kUnsupportedVersion.
  static Result<PatchEntries> open(const std::string& path);

  const ModelFile& file() const noexcept { return *file_; }
  ModelFile& file() noexcept { return *file_; }
  const std::string& path() const noexcept { return file_->name(); }
  const PatchHead& head() const noexcept { return head_; }

  // Whether the new file's digest has this header; true if there is none.
  bool makes_header(std::string_view json) const;

  // An entry of `metadata`, or "" if it isn't there.
  std::string text(const std::string& key) const;

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

}  // namespace deltawire::model
