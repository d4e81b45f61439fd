// The public functions of deltawire/patch_file.h.
#include "deltawire/patch_file.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <memory>
#include <utility>

#include "base/errors.h"
#include "base/little_endian.h"
#include "model/model.h"
#include "model/patch_file_writer.h"
#include "model/patched_model.h"

namespace deltawire {

namespace model {

namespace {

// Counts what is done of `all` bytes, and copies of it do so together.
Result<Work> work_on(std::uint64_t all, const PatchFileOptions& options) {
  ASSIGN_OR_RETURN(const auto target, patch::target_in_use());
  auto advance = [all, &options, done = std::make_shared<std::uint64_t>(0)](std::uint64_t bytes) -> Status {
    *done += bytes;
    if (!options.progress || options.progress(std::min(*done, all), all)) return {};
    return fail(ErrorCode::kAborted, "interrupted, and nothing was written");
  };
  return Work{{target, options.workers}, std::move(advance)};
}

// The old tensor that a patch can make the new one of, or null.
const ModelTensor* base_of(const ModelTensor& tensor, const ModelHeader& old_header) {
  const ModelTensor* const base = old_header.find(tensor.name);
  return base != nullptr && base->same_kind(tensor) ? base : nullptr;
}

std::vector<ModelTensor> planned_entries(const Model& from, const Model& to) {
  std::vector<ModelTensor> planned;
  for (const ModelTensor& tensor : to.header().tensors) {
    if (base_of(tensor, from.header()) != nullptr) {
      const std::uint64_t elements = tensor.bytes / weight_bytes(tensor.type);
      planned.push_back(row_of_bytes(std::string(kPatchPrefix) + tensor.name,
                                     patch::most_patch_bytes(elements, tensor.type)));
    } else {
      planned.push_back(tensor);
      planned.back().name.insert(0, kFullPrefix);
    }
  }
  if (from.header_json() != to.header_json()) {
    planned.push_back(row_of_bytes(std::string(kHeaderName), to.header_json().size()));
  }
  return planned;
}

// Where a new patch file is to be, and what it calls the versions.
struct PatchPlace {
  std::string path;
  bool replace = false;
  bool has_file_digest = false;
  std::string from;
  std::string to;
};

// Whether a patch leaves out tensors that don't change.
bool may_leave_out(const Model& from, const Model& to) {
  const auto common = std::ranges::count_if(to.header().tensors, [&](const ModelTensor& tensor) {
    return base_of(tensor, from.header()) != nullptr;
  });
  return static_cast<std::size_t>(common) > kMostUnchangedEntries;
}

std::map<std::string, std::string> metadata_of(const TensorDigests& digests, const Model& to,
                                               const PatchPlace& place) {
  std::map<std::string, std::string> metadata = {{"format", std::string(kPatchFormat)},
                                                 {"format_version", std::string(kPatchFormatVersion)},
                                                 {"old", digest_text(digests.from)},
                                                 {"new", digest_text(digests.to)}};
  if (place.has_file_digest) {
    metadata[std::string(kFileKey)] = digest_text(file_digest(to.header_json(), digests.to));
  }
  if (!place.from.empty()) metadata["from"] = place.from;
  if (!place.to.empty()) metadata["to"] = place.to;
  return metadata;
}

// Adds an entry for each tensor of `to`; returns the digests of both models.
Result<TensorDigests> add_tensors(Model& from, Model& to, PatchFileWriter& writer, const Work& work) {
  const ModelHeader& old_header = from.header();
  const bool leaves_out = may_leave_out(from, to);
  std::vector<std::optional<std::uint64_t>> old_digests(old_header.tensors.size());
  std::vector<std::uint64_t> new_digests;
  for (const ModelTensor& tensor : to.header().tensors) {
    const ModelTensor* const base = base_of(tensor, old_header);
    if (base == nullptr) {
      ASSIGN_OR_RETURN(new_digests.emplace_back(), writer.add_full(to, tensor, work));
      continue;
    }
    ASSIGN_OR_RETURN(const auto added, writer.add_patch(from, *base, to, tensor, work));
    if (leaves_out && added.from == added.to) writer.leave_out_last();
    old_digests[static_cast<std::size_t>(base - old_header.tensors.data())] = added.from;
    new_digests.push_back(added.to);
  }
  ASSIGN_OR_RETURN(const auto old_digest, digest_of(from, old_digests, work));
  assert(new_digests.size() == to.header().tensors.size());
  return TensorDigests{old_digest, model_digest(to.header(), new_digests)};
}

// Writes the patch from a model to another; `check` sees the digests before the file takes its place.
Status write_patch(Model& from, Model& to, NewFile file, const PatchPlace& place, const Work& work,
                   const auto& check) {
  PatchFileWriter writer(std::move(file), place.path, planned_entries(from, to), metadata_of({}, to, place));
  RETURN_IF_ERROR(writer.check_limits());
  ASSIGN_OR_RETURN(const auto digests, add_tensors(from, to, writer, work));
  RETURN_IF_ERROR(check(digests));
  if (from.header_json() != to.header_json()) {
    RETURN_IF_ERROR(writer.add_text(to.header_json()));
  }
  auto metadata = metadata_of(digests, to, place);
  if (writer.leaves_out()) metadata["format_version"] = kFormatThatLeavesOut;
  return writer.finish(metadata, place.replace);
}

Status make(const std::string& old_path, const std::string& new_path, const std::string& patch_path,
            const PatchFileOptions& options) {
  ASSIGN_OR_RETURN(auto file, begin_file(patch_path, options.replace, std::array{old_path, new_path}));
  ASSIGN_OR_RETURN(const auto from, ModelFile::open(old_path));
  ASSIGN_OR_RETURN(const auto to, ModelFile::open(new_path));
  ASSIGN_OR_RETURN(const auto work, work_on(to->header().data_bytes, options));
  return write_patch(*from, *to, std::move(file),
                     {patch_path, options.replace, true, options.from, options.to}, work,
                     [](const TensorDigests&) { return Status(); });
}

// Opens what a patch file makes of the model in `old_path`, and hands both it and the work to `use`.
Status with_patched(const std::string& old_path, const std::string& patch_path,
                    const PatchFileOptions& options, const auto& use) {
  ASSIGN_OR_RETURN(auto entries, PatchEntries::open(patch_path));
  ASSIGN_OR_RETURN(auto from, ModelFile::open(old_path));
  ASSIGN_OR_RETURN(const auto work, work_on(from->header().data_bytes, options));
  ASSIGN_OR_RETURN(const auto model, PatchedModel::make(std::move(from), std::move(entries), work));
  if (options.has_file_digest != nullptr) {
    *options.has_file_digest = model->entries().head().new_file_digest.has_value();
  }
  return use(*model, work);
}

// Reads the new model from beginning to end, gives `take` its bytes, and makes all checks.
Status read_patched(PatchedModel& model, const Work& work, const std::function<Status(Bytes)>& take) {
  std::vector<std::uint64_t> digests;
  for (const ModelTensor& tensor : model.header().tensors) {
    ASSIGN_OR_RETURN(const auto read, read_tensor(model, tensor, work, take));
    model.learn(tensor, read);
    digests.push_back(read);
  }
  RETURN_IF_ERROR(model.check_from());
  return check_new_digest(model.entries(), model_digest(model.header(), digests));
}

Status apply(const std::string& old_path, const std::string& patch_path, const std::string& new_path,
             const PatchFileOptions& options) {
  ASSIGN_OR_RETURN(auto file, begin_file(new_path, options.replace, std::array{old_path, patch_path}));
  const auto write = [&](Bytes bytes) { return in_file(write_all(file.descriptor(), bytes), new_path); };
  const auto write_model = [&](PatchedModel& model, const Work& work) -> Status {
    std::array<std::byte, kModelLengthBytes> length{};
    store_le(length.data(), std::uint64_t{model.header_json().size()});
    RETURN_IF_ERROR(write(length));
    RETURN_IF_ERROR(write(std::as_bytes(std::span(model.header_json()))));
    return read_patched(model, work, write);
  };
  RETURN_IF_ERROR(with_patched(old_path, patch_path, options, write_model));
  return end_file(file, new_path, options.replace);
}

Status verify(const std::string& old_path, const std::string& patch_path, const PatchFileOptions& options) {
  return with_patched(old_path, patch_path, options, [](PatchedModel& model, const Work& work) {
    return read_patched(model, work, [](Bytes) { return Status(); });
  });
}

// Whether each patch begins where the one before ends.
Status check_chain(std::span<const PatchEntries> patches) {
  for (std::size_t i = 1; i < patches.size(); ++i) {
    if (patches[i].head().old_digest == patches[i - 1].head().new_digest) continue;
    return error_in(patches[i].path(),
                    {ErrorCode::kMismatch, "the patch is for a model with the digest " +
                                               digest_text(patches[i].head().old_digest) + ", and " +
                                               printable_line(patches[i - 1].path()) + " makes one with " +
                                               digest_text(patches[i - 1].head().new_digest) +
                                               ": give patches in the order of versions, without a gap"});
  }
  return {};
}

Status merge(const std::string& old_path, std::span<const std::string> patch_paths,
             const std::string& merged_path, const PatchFileOptions& options) {
  if (patch_paths.empty()) return invalid("there is no patch to merge: give some");
  std::vector<std::string> inputs(patch_paths.begin(), patch_paths.end());
  inputs.push_back(old_path);
  ASSIGN_OR_RETURN(auto file, begin_file(merged_path, options.replace, inputs));
  std::vector<PatchEntries> patches;
  for (const std::string& path : patch_paths) {
    ASSIGN_OR_RETURN(auto entries, PatchEntries::open(path));
    patches.push_back(std::move(entries));
  }
  RETURN_IF_ERROR(check_chain(patches));
  ASSIGN_OR_RETURN(const auto from, ModelFile::open(old_path));
  ASSIGN_OR_RETURN(const auto work, work_on(from->header().data_bytes, options));
  ASSIGN_OR_RETURN(std::unique_ptr<Model> to, ModelFile::open(old_path));
  // A digest of what no digest has checked would say more than is known.
  const PatchPlace place{merged_path, options.replace, patches.back().head().new_file_digest.has_value(),
                         options.from.empty() ? patches.front().text("from") : options.from,
                         options.to.empty() ? patches.back().text("to") : options.to};
  const std::uint64_t old_digest = patches.front().head().old_digest;
  const PatchedModel* last = nullptr;
  for (PatchEntries& entries : patches) {
    ASSIGN_OR_RETURN(auto patched, PatchedModel::make(std::move(to), std::move(entries), work));
    last = patched.get();
    to = std::move(patched);
  }
  assert(last != nullptr);
  const auto check = [&](const TensorDigests& digests) -> Status {
    if (digests.from != old_digest) {
      return error_in(old_path, {ErrorCode::kMismatch, "is another model than the one that " +
                                                           printable_line(patch_paths.front()) +
                                                           " was made from: give that one"});
    }
    return check_new_digest(last->entries(), digests.to);
  };
  return write_patch(*from, *to, std::move(file), place, work, check);
}

Result<PatchFileInfo> inspect(const std::string& patch_path) {
  ASSIGN_OR_RETURN(const auto entries, PatchEntries::open(patch_path));
  PatchFileInfo info;
  info.old_digest = entries.head().old_digest;
  info.new_digest = entries.head().new_digest;
  info.file_digest = entries.head().new_file_digest;
  info.from = entries.text("from");
  info.to = entries.text("to");
  info.leaves_out_unchanged = entries.head().leaves_out_unchanged;
  info.file_bytes = entries.file().file_bytes();
  for (const ModelTensor& entry : entries.file().header().tensors) {
    if (entry.name == kHeaderName) {
      info.has_header = true;
      RETURN_IF_ERROR(entries.new_header());
      continue;
    }
    PatchFileTensor tensor{
        std::string(tensor_of(entry)), entry.name.starts_with(kFullPrefix), entry.bytes, entry.bytes, {}};
    if (!tensor.full) {
      ASSIGN_OR_RETURN(auto stored, entries.open_patch(entry));
      ASSIGN_OR_RETURN(tensor.patch, in_file(stored.inspect(), patch_path, entry));
      tensor.new_bytes = tensor.patch.elements * weight_bytes(tensor.patch.type);
    }
    info.tensors.push_back(std::move(tensor));
  }
  return info;
}

constexpr const char* kDoing = "working on a patch file";

}  // namespace

}  // namespace model

Status make_patch_file(const std::string& old_path, const std::string& new_path,
                       const std::string& patch_path, const PatchFileOptions& options) {
  return or_no_memory(model::kDoing, [&] { return model::make(old_path, new_path, patch_path, options); });
}

Status apply_patch_file(const std::string& old_path, const std::string& patch_path,
                        const std::string& new_path, const PatchFileOptions& options) {
  return or_no_memory(model::kDoing, [&] { return model::apply(old_path, patch_path, new_path, options); });
}

Status verify_patch_file(const std::string& old_path, const std::string& patch_path,
                         const PatchFileOptions& options) {
  return or_no_memory(model::kDoing, [&] { return model::verify(old_path, patch_path, options); });
}

Status merge_patch_files(const std::string& old_path, std::span<const std::string> patch_paths,
                         const std::string& merged_path, const PatchFileOptions& options) {
  return or_no_memory(model::kDoing,
                      [&] { return model::merge(old_path, patch_paths, merged_path, options); });
}

Result<PatchFileInfo> inspect_patch_file(const std::string& patch_path) {
  return or_no_memory(model::kDoing, [&] { return model::inspect(patch_path); });
}

// Patch files whose bytes are in memory.

namespace {

Result<bool> changes_nothing(const PatchFilePart& part) {
  if (part.full) return false;
  ASSIGN_OR_RETURN(const auto said, inspect_patch(part.data));
  return said.old_digest == said.new_digest;
}

}  // namespace

Result<PatchFileView> read_patch_file(Bytes file) {
  ASSIGN_OR_RETURN(const auto read, read_model(file));
  ASSIGN_OR_RETURN(const auto head, model::read_patch_head(read.header));
  PatchFileView view{head.old_digest, head.new_digest, head.leaves_out_unchanged, {}, {}};
  for (const ModelTensor& entry : read.header.tensors) {
    const Bytes data = read.bytes_of(entry);
    if (entry.name != model::kHeaderName) {
      PatchFilePart part{entry, entry.name.starts_with(model::kFullPrefix), data};
      part.tensor.name = model::tensor_of(entry);
      view.parts.push_back(std::move(part));
    } else if (view.leaves_out_unchanged) {
      ASSIGN_OR_RETURN(const auto header,
                       read_model_header({reinterpret_cast<const char*>(data.data()), data.size()}));
      for (const ModelTensor& tensor : header.tensors) view.names.push_back(tensor.name);
    }
  }
  return view;
}

Result<PatchFileFront> begin_patch_file(std::span<const PatchFilePart> parts, const NewPatchFile& file) {
  const auto patches = std::ranges::count(parts, false, &PatchFilePart::full);
  const bool may_leave_out = static_cast<std::size_t>(patches) > model::kMostUnchangedEntries;
  PatchFileFront front;
  std::vector<ModelTensor> entries;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ASSIGN_OR_RETURN(const auto unchanged, may_leave_out ? changes_nothing(parts[i]) : Result<bool>(false));
    if (unchanged) continue;
    front.order.push_back(i);
    const ModelTensor& tensor = parts[i].tensor;
    if (parts[i].full) {
      entries.push_back(tensor);
      entries.back().name.insert(0, model::kFullPrefix);
    } else {
      entries.push_back(
          model::row_of_bytes(std::string(model::kPatchPrefix) + tensor.name, parts[i].data.size()));
    }
  }
  const bool leaves_out = front.order.size() < parts.size();
  if (!file.header.empty()) {
    entries.push_back(model::row_of_bytes(std::string(model::kHeaderName), file.header.size()));
  }
  const ModelMetadata metadata = {
      {"format", std::string(model::kPatchFormat)},
      {"format_version", std::string(leaves_out ? model::kFormatThatLeavesOut : model::kPatchFormatVersion)},
      {"old", digest_text(file.old_digest)},
      {"new", digest_text(file.new_digest)},
      {"from", file.from},
      {"to", file.to}};
  front.bytes = model_front(std::move(entries), metadata);
  return front;
}

}  // namespace deltawire
