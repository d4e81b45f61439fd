#include "model/patch_entries.h"

#include <charconv>
#include <utility>

namespace deltawire::model {

namespace {

std::string named(std::string_view prefix, const std::string& tensor_name) {
  return std::string(prefix) + tensor_name;
}

}  // namespace

std::string_view tensor_of(const TensorEntry& entry) noexcept {
  const std::string_view name = entry.name;
  for (const std::string_view prefix : {kPatchPrefix, kFullPrefix}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return {};
}

Result<PatchEntries> PatchEntries::open(const std::string& path) {
  auto file = ModelFile::open(path);
  if (!file) return forward_error(file);
  PatchEntries entries(*std::move(file));
  if (const Status read = entries.read_metadata(); !read) return error_in(path, read.error());
  if (const Status sound = entries.check_names(); !sound) return error_in(path, sound.error());
  return entries;
}

std::string PatchEntries::text(const std::string& key) const {
  const auto& metadata = file_->header().metadata;
  const auto at = metadata.find(key);
  return at == metadata.end() ? std::string() : at->second;
}

Status PatchEntries::read_metadata() {
  if (text("format") != kPatchFormat) {
    return fail(
        ErrorCode::kCorrupt,
        "is no patch file: its header does not say \"format\": \"deltawire-patch\"; give the file that "
        "'deltawire patch make' wrote");
  }
  if (text("format_version") != kPatchFormatVersion && !leaves_out_unchanged()) {
    return fail(ErrorCode::kUnsupportedVersion, "is a patch file of format '" +
                                                    printable_line(text("format_version"), 20) +
                                                    "'; this version of deltawire reads formats 1 and 2");
  }
  for (const auto& [key, digest] : {std::pair("old", &old_digest_), std::pair("new", &new_digest_)}) {
    const auto read = digest_called(key);
    if (!read) return forward_error(read);
    *digest = *read;
  }
  if (file_->header().metadata.contains(std::string(kFileKey))) {
    const auto read = digest_called(std::string(kFileKey));
    if (!read) return forward_error(read);
    new_file_digest_ = *read;
  }
  return {};
}

bool PatchEntries::makes_header(std::string_view json) const {
  return !new_file_digest_ || file_digest(json, new_digest_) == *new_file_digest_;
}

Result<std::uint64_t> PatchEntries::digest_called(const std::string& key) const {
  const std::string digits = text(key);
  std::uint64_t digest = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), digest, 16);
  if (read.ec == std::errc() && digits == digest_text(digest)) return digest;
  return fail(ErrorCode::kCorrupt,
              "the header's \"" + key + "\" is not a digest of 16 digits: get the file again");
}

Status PatchEntries::check_names() const {
  for (const TensorEntry& entry : file_->header().tensors) {
    const bool is_patch = entry.name.starts_with(kPatchPrefix);
    if (entry.name != kHeaderName && !is_patch && !entry.name.starts_with(kFullPrefix)) {
      return fail(ErrorCode::kCorrupt, shown(entry.name) + " is neither \"patch:NAME\" nor \"full:NAME\"");
    }
    if ((is_patch || entry.name == kHeaderName) && (entry.dtype != "U8" || entry.shape.size() != 1)) {
      return fail(ErrorCode::kCorrupt, shown(entry.name) + " is not a row of bytes (U8)");
    }
    if (is_patch && full_of(std::string(tensor_of(entry))) != nullptr) {
      return fail(ErrorCode::kCorrupt, shown(tensor_of(entry)) + " is there as a patch and in full");
    }
  }
  return {};
}

const TensorEntry* PatchEntries::patch_of(const std::string& tensor_name) const noexcept {
  return file_->header().find(named(kPatchPrefix, tensor_name));
}

const TensorEntry* PatchEntries::full_of(const std::string& tensor_name) const noexcept {
  return file_->header().find(named(kFullPrefix, tensor_name));
}

std::uint64_t PatchEntries::tensors() const noexcept {
  return file_->header().tensors.size() - (file_->header().find(kHeaderName) != nullptr ? 1 : 0);
}

Result<patch::StoredPatch> PatchEntries::open_patch(const TensorEntry& entry) const {
  auto opened = patch::StoredPatch::open(file_->descriptor(), file_->place_of(entry), entry.bytes);
  if (!opened) return error_in(path(), entry, opened.error());
  return opened;
}

Result<std::string> PatchEntries::new_header() const {
  const TensorEntry* const entry = file_->header().find(kHeaderName);
  if (entry == nullptr) return std::string();
  if (entry->bytes == 0) return error_in(path(), *entry, {ErrorCode::kCorrupt, "is empty"});
  if (entry->bytes > kMostHeaderBytes) {
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
