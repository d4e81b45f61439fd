// What the header of a patch file says of the whole: docs/reference/patch-files.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "deltawire/safetensors.h"

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

}  // namespace deltawire::model
