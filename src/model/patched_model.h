// The model that a patch file makes of another one, tensor by tensor as it is read.
#pragma once

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
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

// An entry of the header's `metadata`, or "" if it isn't there.
inline std::string text_of(const ModelHeader& header, std::string_view key) {
  const auto at = header.metadata.find(std::string(key));
  return at == header.metadata.end() ? std::string() : at->second;
}

// Of a patch, or a header.
inline ModelTensor row_of_bytes(std::string name, std::uint64_t bytes) {
  return {std::move(name), "U8", WeightType::kInt8, {bytes}, 0, bytes};
}

// The name of the tensor that an entry is for; "" for "header".
inline std::string_view tensor_of(const ModelTensor& entry) noexcept {
  const std::string_view name = entry.name;
  for (const std::string_view prefix : {kPatchPrefix, kFullPrefix}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return {};
}

inline Result<std::uint64_t> digest_called(const ModelHeader& header, std::string_view key) {
  const std::string digits = text_of(header, key);
  std::uint64_t digest = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), digest, 16);
  if (read.ec == std::errc() && digits == digest_text(digest)) return digest;
  return corrupt("the header's \"" + std::string(key) +
                 "\" is not a digest of 16 digits: get the file again");
}

inline Status check_names(const ModelHeader& header) {
  for (const ModelTensor& entry : header.tensors) {
    const bool is_patch = entry.name.starts_with(kPatchPrefix);
    if (entry.name != kHeaderName && !is_patch && !entry.name.starts_with(kFullPrefix)) {
      return corrupt(shown(entry.name) + " is neither \"patch:NAME\" nor \"full:NAME\"");
    }
    if ((is_patch || entry.name == kHeaderName) && (entry.dtype != "U8" || entry.shape.size() != 1)) {
      return corrupt(shown(entry.name) + " is not a row of bytes (U8)");
    }
    if (is_patch && header.find(std::string(kFullPrefix).append(tensor_of(entry))) != nullptr) {
      return corrupt(shown(tensor_of(entry)) + " is there as a patch and in full");
    }
  }
  return {};
}

// Errors, without the file's name: kCorrupt, kUnsupportedVersion.
inline Result<PatchHead> read_patch_head(const ModelHeader& header) {
  if (text_of(header, "format") != kPatchFormat) {
    return corrupt(
        "is no patch file: its header does not say \"format\": \"deltawire-patch\"; give the file that "
        "'deltawire patch make' wrote");
  }
  PatchHead head;
  const std::string version = text_of(header, "format_version");
  head.leaves_out_unchanged = version == kFormatThatLeavesOut;
  if (version != kPatchFormatVersion && !head.leaves_out_unchanged) {
    return fail(ErrorCode::kUnsupportedVersion, "is a patch file of format '" + printable_line(version, 20) +
                                                    "'; this version of deltawire reads formats 1 and 2");
  }
  for (const auto& [key, digest] : {std::pair("old", &head.old_digest), std::pair("new", &head.new_digest)}) {
    ASSIGN_OR_RETURN(*digest, digest_called(header, key));
  }
  if (header.metadata.contains(std::string(kFileKey))) {
    ASSIGN_OR_RETURN(head.new_file_digest, digest_called(header, kFileKey));
  }
  RETURN_IF_ERROR(check_names(header));
  return head;
}

// What a patch file says (docs/reference/patch-files.md), one whose own text is sound. What its
// patches hold is not read yet.
class PatchEntries {
 public:
  // Throws std::bad_alloc. Errors, with the path: those of ModelFile::open(); kCorrupt, kUnsupportedVersion.
  static Result<PatchEntries> open(const std::string& path) {
    ASSIGN_OR_RETURN(auto file, ModelFile::open(path));
    PatchEntries entries(std::move(file));
    ASSIGN_OR_RETURN(entries.head_, in_file(read_patch_head(entries.file().header()), path));
    return entries;
  }

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
  const ModelTensor* patch_of(const std::string& tensor_name) const noexcept {
    return file_->header().find(named(kPatchPrefix, tensor_name));
  }

  const ModelTensor* full_of(const std::string& tensor_name) const noexcept {
    return file_->header().find(named(kFullPrefix, tensor_name));
  }

  // Tensors that the file has entries for.
  std::uint64_t tensors() const noexcept {
    return file_->header().tensors.size() - (file_->header().find(kHeaderName) != nullptr ? 1 : 0);
  }

  // Opens an entry "patch:NAME". Errors, with path and tensor: those of StoredPatch::open().
  Result<patch::StoredPatch> open_patch(const ModelTensor& entry) const {
    return in_file(patch::StoredPatch::open(file_->descriptor(), file_->place_of(entry), entry.bytes), path(),
                   entry);
  }

  // The new model's header, "" if it is the old one's. Throws std::bad_alloc. Errors: kIo, kLimit, kCorrupt.
  Result<std::string> new_header() const {
    const ModelTensor* const entry = file_->header().find(kHeaderName);
    if (entry == nullptr) return std::string();
    if (entry->bytes == 0) return error_in(path(), *entry, {ErrorCode::kCorrupt, "is empty"});
    if (entry->bytes > kMostModelHeaderBytes) {
      return error_in(path(), *entry, {ErrorCode::kLimit, "is longer than a header may be"});
    }
    std::string json(entry->bytes, '\0');
    RETURN_IF_ERROR(file_->read(*entry, 0, std::as_writable_bytes(std::span(json))));
    if (makes_header(json)) return json;
    return error_in(path(), {ErrorCode::kCorrupt,
                             "the new file's header doesn't fit the digests of the patch: "
                             "get the file again"});
  }

 private:
  static std::string named(std::string_view prefix, const std::string& tensor_name) {
    return std::string(prefix) + tensor_name;
  }

  explicit PatchEntries(std::unique_ptr<ModelFile> file) : file_(std::move(file)) {}

  std::unique_ptr<ModelFile> file_;
  PatchHead head_;
};

class PatchedModel final : public Model {
 public:
  // Checks that entries, old and new header fit together. Throws std::bad_alloc. Errors: kMismatch if the
  // patch is for another model, kCorrupt, and those of PatchEntries::new_header() and read_model_header().
  static Result<std::unique_ptr<PatchedModel>> make(std::unique_ptr<Model> from, PatchEntries entries,
                                                    const Work& work) {
    std::unique_ptr<PatchedModel> model(new PatchedModel(std::move(from), std::move(entries), work));
    model->from_digests_.resize(model->from_->header().tensors.size());
    RETURN_IF_ERROR(model->read_headers());
    RETURN_IF_ERROR(in_file(model->check_entries(), model->name()));
    RETURN_IF_ERROR(model->check_header());
    return model;
  }

  const std::string& name() const noexcept override { return entries_.path(); }
  const ModelHeader& header() const noexcept override { return header_; }
  const std::string& header_json() const noexcept override { return json_; }
  Result<std::unique_ptr<TensorReader>> open(const ModelTensor& tensor) override {
    if (const ModelTensor* const full = entries_.full_of(tensor.name); full != nullptr) {
      return entries_.file().open(*full);
    }
    assert(from_->header().find(tensor.name) != nullptr);
    const ModelTensor& from = *from_->header().find(tensor.name);
    if (!has_entry(tensor)) return from_->open(from);
    const ModelTensor& entry = *entries_.patch_of(tensor.name);
    ASSIGN_OR_RETURN(auto stored, entries_.open_patch(entry));
    const patch::Head& head = stored.head();
    if (head.type != from.type || head.elements * weight_bytes(head.type) != from.bytes) {
      return error_in(name(), entry,
                      {ErrorCode::kCorrupt, "its patch is for a tensor of another type or length"});
    }
    ASSIGN_OR_RETURN(auto below, from_->open(from));
    return std::make_unique<PatchedTensor>(*this, from, entry, std::move(stored), std::move(below));
  }

  // The digest of a tensor of header(), which was read to its end.
  void learn(const ModelTensor& tensor, std::uint64_t digest) {
    if (!has_entry(tensor)) from_digest(*from_->header().find(tensor.name)) = digest;
  }

  // After every tensor was read to its end: whether the model below is the one that the patch was made from.
  // Reads those of its tensors that were not needed. Errors: kMismatch and those of reading.
  Status check_from() {
    ASSIGN_OR_RETURN(const auto digest, digest_of(*from_, from_digests_, work_));
    const std::uint64_t wanted = entries_.head().old_digest;
    if (digest == wanted) return {};
    return error_in(name(), {ErrorCode::kMismatch,
                             "the patch was made from a model with the digest " + digest_text(wanted) + "; " +
                                 printable_line(from_->name()) + " has " + digest_text(digest) +
                                 ": give the model that it was made from"});
  }

  const PatchEntries& entries() const noexcept { return entries_; }

 private:
  class PatchedTensor final : public TensorReader {
   public:
    PatchedTensor(PatchedModel& model, const ModelTensor& from, const ModelTensor& entry,
                  patch::StoredPatch stored, std::unique_ptr<TensorReader> below)
        : model_(model), from_(from), entry_(entry), stored_(std::move(stored)), below_(std::move(below)) {}

    Status next(MutBytes out) override {
      RETURN_IF_ERROR(below_->next(out));
      return named(stored_.apply(out, out.data(), model_.work_.means));
    }

    Status finish() override {
      RETURN_IF_ERROR(below_->finish());
      RETURN_IF_ERROR(named(stored_.finish()));
      model_.from_digest(from_) = stored_.head().old_root;
      return {};
    }

   private:
    // A patch that was made from other weights may well be sound: the other file needs a look.
    Status named(const Status& result) const {
      const bool is_of_other = !result && result.error().code == ErrorCode::kMismatch;
      return in_file(result, (is_of_other ? *model_.from_ : model_).name(), is_of_other ? from_ : entry_);
    }

    PatchedModel& model_;
    const ModelTensor& from_;
    const ModelTensor& entry_;
    patch::StoredPatch stored_;
    std::unique_ptr<TensorReader> below_;
  };

  PatchedModel(std::unique_ptr<Model> from, PatchEntries entries, const Work& work)
      : from_(std::move(from)), entries_(std::move(entries)), work_(work) {}
  Status read_headers() {
    ASSIGN_OR_RETURN(auto json, entries_.new_header());
    if (json.empty()) {
      json_ = from_->header_json();
      header_ = from_->header();
      return {};
    }
    json_ = std::move(json);
    auto header = read_model_header(json_);
    if (!header) return error_in(name(), {header.error().code, "the new header: " + header.error().message});
    header_ = *std::move(header);
    return {};
  }

  // Every tensor of the new model has one entry, unless it is left out, and no other entry is there.
  Status check_entries() const {
    for (const ModelTensor& tensor : header_.tensors) {
      RETURN_IF_ERROR(check_entry(tensor));
    }
    const auto found = std::ranges::count_if(header_.tensors,
                                             [this](const ModelTensor& tensor) { return has_entry(tensor); });
    if (entries_.tensors() == static_cast<std::uint64_t>(found)) return {};
    if (entries_.file().header().find(kHeaderName) == nullptr) {
      return mismatch("the patch has " + std::to_string(entries_.tensors()) + " tensors, the model " +
                      from_->name() + " " + std::to_string(header_.tensors.size()) +
                      ": give the model that it was made from");
    }
    return corrupt("has tensors that its new header does not name: get the file again");
  }

  Status check_header() const {
    if (entries_.makes_header(json_)) return {};
    return error_in(
        from_->name(),
        {ErrorCode::kMismatch,
         "has another header than the file that " + printable_line(name()) +
             " was made from, and so would the new file: if a program has saved it again, give it "
             "as it was, otherwise get the patch again"});
  }

  Status check_entry(const ModelTensor& tensor) const {
    if (const ModelTensor* const full = entries_.full_of(tensor.name); full != nullptr) {
      if (full->same_kind(tensor)) return {};
      return mismatch(shown(tensor.name) + " has another dtype or shape than in the model");
    }
    if (entries_.patch_of(tensor.name) == nullptr && !entries_.head().leaves_out_unchanged) {
      return mismatch("has nothing for " + shown(tensor.name) +
                      ": give the model that the patch was made from");
    }
    const ModelTensor* const from = from_->header().find(tensor.name);
    if (from != nullptr && from->same_kind(tensor)) return {};
    return mismatch((has_entry(tensor) ? "changes " : "takes over ") + shown(tensor.name) + ", and " +
                    from_->name() + (from == nullptr ? " has none" : " has one of another dtype or shape") +
                    ": give the model that the patch was made from");
  }

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
inline Status check_new_digest(const PatchEntries& entries, std::uint64_t digest) {
  if (digest == entries.head().new_digest) return {};
  return error_in(entries.path(),
                  {ErrorCode::kCorrupt, "the patch makes a model with the digest " + digest_text(digest) +
                                            ", not the one that it was made for, " +
                                            digest_text(entries.head().new_digest) + ": get the file again"});
}

}  // namespace deltawire::model
