// Patch files whose bytes are in memory.
#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "deltawire/patch_file.h"
#include "model/model.h"
#include "model/patch_head.h"

namespace deltawire {

namespace {

ModelTensor row_of_bytes(std::string name, std::uint64_t bytes) {
  return {std::move(name), "U8", WeightType::kInt8, {bytes}, 0, bytes};
}

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
      entries.back().name = std::string(model::kFullPrefix) + tensor.name;
    } else {
      entries.push_back(row_of_bytes(std::string(model::kPatchPrefix) + tensor.name, parts[i].data.size()));
    }
  }
  const bool leaves_out = front.order.size() < parts.size();
  if (!file.header.empty()) {
    entries.push_back(row_of_bytes(std::string(model::kHeaderName), file.header.size()));
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
