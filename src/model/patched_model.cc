#include "model/patched_model.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/errors.h"
#include "model/model.h"

namespace deltawire::model {

std::string text_of(const ModelHeader& header, std::string_view key) {
  const auto at = header.metadata.find(std::string(key));
  return at == header.metadata.end() ? std::string() : at->second;
}

ModelTensor row_of_bytes(std::string name, std::uint64_t bytes) {
  return {std::move(name), "U8", WeightType::kInt8, {bytes}, 0, bytes};
}

namespace {

Result<std::uint64_t> digest_called(const ModelHeader& header, std::string_view key) {
  const std::string digits = text_of(header, key);
  std::uint64_t digest = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), digest, 16);
  if (read.ec == std::errc() && digits == digest_text(digest)) return digest;
  return corrupt("the header's \"" + std::string(key) +
                 "\" is not a digest of 16 digits: get the file again");
}

Status check_names(const ModelHeader& header) {
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

}  // namespace

std::string_view tensor_of(const ModelTensor& entry) noexcept {
  const std::string_view name = entry.name;
  for (const std::string_view prefix : {kPatchPrefix, kFullPrefix}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return {};
}

Result<PatchHead> read_patch_head(const ModelHeader& header) {
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

namespace {

std::string named(std::string_view prefix, const std::string& tensor_name) {
  return std::string(prefix) + tensor_name;
}

}  // namespace

Result<PatchEntries> PatchEntries::open(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, ModelFile::open(path));
  PatchEntries entries(std::move(file));
  ASSIGN_OR_RETURN(entries.head_, in_file(read_patch_head(entries.file().header()), path));
  return entries;
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
  return in_file(patch::StoredPatch::open(file_->descriptor(), file_->place_of(entry), entry.bytes), path(),
                 entry);
}

Result<std::string> PatchEntries::new_header() const {
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

class PatchedModel::PatchedTensor final : public TensorReader {
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

Result<std::unique_ptr<PatchedModel>> PatchedModel::make(std::unique_ptr<Model> from, PatchEntries entries,
                                                         const Work& work) {
  std::unique_ptr<PatchedModel> model(new PatchedModel(std::move(from), std::move(entries), work));
  model->from_digests_.resize(model->from_->header().tensors.size());
  RETURN_IF_ERROR(model->read_headers());
  RETURN_IF_ERROR(in_file(model->check_entries(), model->name()));
  RETURN_IF_ERROR(model->check_header());
  return model;
}

Status PatchedModel::read_headers() {
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
Status PatchedModel::check_entries() const {
  for (const ModelTensor& tensor : header_.tensors) {
    RETURN_IF_ERROR(check_entry(tensor));
  }
  const auto found =
      std::ranges::count_if(header_.tensors, [this](const ModelTensor& tensor) { return has_entry(tensor); });
  if (entries_.tensors() == static_cast<std::uint64_t>(found)) return {};
  if (entries_.file().header().find(kHeaderName) == nullptr) {
    return mismatch("the patch has " + std::to_string(entries_.tensors()) + " tensors, the model " +
                    from_->name() + " " + std::to_string(header_.tensors.size()) +
                    ": give the model that it was made from");
  }
  return corrupt("has tensors that its new header does not name: get the file again");
}

Status PatchedModel::check_entry(const ModelTensor& tensor) const {
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

Status PatchedModel::check_header() const {
  if (entries_.makes_header(json_)) return {};
  return error_in(from_->name(),
                  {ErrorCode::kMismatch,
                   "has another header than the file that " + printable_line(name()) +
                       " was made from, and so would the new file: if a program has saved it again, give it "
                       "as it was, otherwise get the patch again"});
}

Result<std::unique_ptr<TensorReader>> PatchedModel::open(const ModelTensor& tensor) {
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

void PatchedModel::learn(const ModelTensor& tensor, std::uint64_t digest) {
  if (!has_entry(tensor)) from_digest(*from_->header().find(tensor.name)) = digest;
}

Status PatchedModel::check_from() {
  ASSIGN_OR_RETURN(const auto digest, digest_of(*from_, from_digests_, work_));
  const std::uint64_t wanted = entries_.head().old_digest;
  if (digest == wanted) return {};
  return error_in(name(), {ErrorCode::kMismatch,
                           "the patch was made from a model with the digest " + digest_text(wanted) + "; " +
                               printable_line(from_->name()) + " has " + digest_text(digest) +
                               ": give the model that it was made from"});
}

Status check_new_digest(const PatchEntries& entries, std::uint64_t digest) {
  if (digest == entries.head().new_digest) return {};
  return error_in(entries.path(),
                  {ErrorCode::kCorrupt, "the patch makes a model with the digest " + digest_text(digest) +
                                            ", not the one that it was made for, " +
                                            digest_text(entries.head().new_digest) + ": get the file again"});
}

}  // namespace deltawire::model
