#include "model/patch_head.h"

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

}  // namespace deltawire::model
