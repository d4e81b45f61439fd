#include "model/patch_entries.h"

#include <utility>

namespace deltawire::model {

namespace {

std::string named(std::string_view prefix, const std::string& tensor_name) {
  return std::string(prefix) + tensor_name;
}

}  // namespace

Result<PatchEntries> PatchEntries::open(const std::string& path) {
  auto file = ModelFile::open(path);
  if (!file) return forward_error(file);
  PatchEntries entries(*std::move(file));
  const auto head = read_patch_head(entries.file().header());
  if (!head) return error_in(path, head.error());
  entries.head_ = *head;
  return entries;
}

std::string PatchEntries::text(const std::string& key) const {
  const auto& metadata = file_->header().metadata;
  const auto at = metadata.find(key);
  return at == metadata.end() ? std::string() : at->second;
}

bool PatchEntries::makes_header(std::string_view json) const {
  return !head_.new_file_digest || file_digest(json, head_.new_digest) == *head_.new_file_digest;
}

const ModelTensor* PatchEntries::patch_of(const std::string& tensor_name) const noexcept {
  return file_->header().find(named(kPatchPrefix, tensor_name));
}

const ModelTensor* PatchEntries::full_of(const std::string& tensor_name) const noexcept {
  return file_->header().find(named(kFullPrefix, tensor_name));
}

std::uint64_t PatchEntries::tensors() const noexcept {
  return file_->header().tensors.size() - (file_->header().find(kHeaderName) != nullptr ? 1 : 0);
}

Result<patch::StoredPatch> PatchEntries::open_patch(const ModelTensor& entry) const {
  auto opened = patch::StoredPatch::open(file_->descriptor(), file_->place_of(entry), entry.bytes);
  if (!opened) return error_in(path(), entry, opened.error());
  return opened;
}

Result<std::string> PatchEntries::new_header() const {
  const ModelTensor* const entry = file_->header().find(kHeaderName);
  if (entry == nullptr) return std::string();
  if (entry->bytes == 0) return error_in(path(), *entry, {ErrorCode::kCorrupt, "is empty"});
  if (entry->bytes > kMostModelHeaderBytes) {
    return error_in(path(), *entry, {ErrorCode::kLimit, "is longer than a header may be"});
  }
  std::string json(entry->bytes, '\0');
  const Status read = file_->read(*entry, 0, std::as_writable_bytes(std::span(json)));
  if (!read) return forward_error(read);
  if (makes_header(json)) return json;
  return error_in(path(), {ErrorCode::kCorrupt,
                           "the new file's header doesn't fit the digests of the patch: "
                           "get the file again"});
}

}  // namespace deltawire::model
