// Patch files: they turn one model in a safetensors file into another, without loss. A patch file is itself a
// safetensors file; docs/reference/patch-files.md describes it.
//
// Files are read and written in pieces, so the memory does not grow with the model: about 50 MB.
//
// A file is written under a temporary name next to its own, flushed to the disk and then renamed: it is there
// whole or not at all. After an error nothing is left behind.
//
// Thread rule: any thread may call; no call keeps state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/patch.h"
#include "deltawire/result.h"
#include "deltawire/safetensors.h"
#include "deltawire/workers.h"

namespace deltawire {

struct PatchFileOptions {
  bool replace = false;        // an existing file may be replaced, though not one that is read
  std::string from;            // names of the two versions, for readers: any text, or empty
  std::string to;              //
  Workers* workers = nullptr;  // may be null; no byte depends on them
  // If not null, apply and verify say here whether the patch has a digest of the whole new file.
  bool* has_file_digest = nullptr;
  // Called now and then with the bytes of weights that are done, and all that are to be done. If it returns
  // false, the call ends with kAborted. May be empty.
  std::function<bool(std::uint64_t done, std::uint64_t all)> progress;
};

// What a patch file has for a tensor.
struct PatchFileTensor {
  std::string name;
  bool full = false;        // the new weights as they are: the tensor is new, or of another dtype or shape
  std::uint64_t bytes = 0;  // of its entry in the file
  std::uint64_t new_bytes = 0;  // of the new weights
  PatchInfo patch;              // unless `full`
};

struct PatchFileInfo {
  std::uint64_t old_digest = 0;  // of the models, over names, dtypes, shapes and weights
  std::uint64_t new_digest = 0;
  std::optional<std::uint64_t>
      file_digest;  // of the whole new file; older patches and those of stores have none
  std::string from;
  std::string to;
  bool has_header = false;            // the new file's header, because it is not the old one's
  bool leaves_out_unchanged = false;  // a tensor without an entry in `tensors` is the same in both models
  std::uint64_t file_bytes = 0;
  std::vector<PatchFileTensor> tensors;  // of the new model, in the order of the file
};

// All calls below give errors that begin with the file's path and name the tensor: kIo if a file can't be
// read or written, kTruncated, kCorrupt, kLimit or kUnsupportedVersion for a file that is damaged or
// something else, kInvalidArgument if the file to be written is one of those to be read, kAborted, kNoMemory.

// Writes the patch that turns the model in `old_path` into the one in `new_path`.
DELTAWIRE_API Status make_patch_file(const std::string& old_path, const std::string& new_path,
                                     const std::string& patch_path, const PatchFileOptions& options = {});

// Writes the new model, byte for byte the file that the patch was made for. Errors also: kMismatch if the old
// model is not the one that the patch was made from, be it that its header alone differs and the new file has
// the same one. Without PatchFileInfo::file_digest the tensors alone are checked, not the new file's header.
DELTAWIRE_API Status apply_patch_file(const std::string& old_path, const std::string& patch_path,
                                      const std::string& new_path, const PatchFileOptions& options = {});

// All checks of apply_patch_file(); nothing is written.
DELTAWIRE_API Status verify_patch_file(const std::string& old_path, const std::string& patch_path,
                                       const PatchFileOptions& options = {});

// Writes one patch with the effect of several in turn, which is smaller than they are together. The old model
// is needed, as patches are coded by its weights. Errors also: kMismatch if a patch is not for the model that
// the previous one makes; kInvalidArgument for no patch.
DELTAWIRE_API Status merge_patch_files(const std::string& old_path, std::span<const std::string> patch_paths,
                                       const std::string& merged_path, const PatchFileOptions& options = {});

// What a patch file in memory has for a tensor, or will have.
struct PatchFilePart {
  ModelTensor tensor;  // of the new model. Of a patch that was read its name alone is known
  bool full = false;   // `data` are the tensor's bytes, not a patch's
  Bytes data;
};

// A patch file in memory, for programs that keep models there.
struct PatchFileView {
  std::uint64_t old_digest = 0;  // of the models
  std::uint64_t new_digest = 0;
  bool leaves_out_unchanged = false;  // tensors without a part are those of the old model
  // Of the new model's tensors, where that is said: they may be others than the old one's.
  std::vector<std::string> names;
  std::vector<PatchFilePart> parts;
};

// Reads a whole file; what its patches hold is not read. Errors, without the file's name: kTruncated,
// kCorrupt, kLimit, kUnsupportedVersion.
DELTAWIRE_API Result<PatchFileView> read_patch_file(Bytes file);

struct NewPatchFile {
  std::uint64_t old_digest = 0;  // of the models
  std::uint64_t new_digest = 0;
  std::string from;  // names of the versions
  std::string to;
  std::string_view header;  // of the new model's file, if that isn't the old one's
};

// The first bytes of a patch file with these parts, one for each tensor of the new model. Behind them follow
// the data of `order`, and NewPatchFile::header. Errors: those of inspect_patch().
struct PatchFileFront {
  std::string bytes;
  std::vector<std::size_t> order;  // indices of parts; those that change nothing may be left out
};
DELTAWIRE_API Result<PatchFileFront> begin_patch_file(std::span<const PatchFilePart> parts,
                                                      const NewPatchFile& file);

// Reads a patch file without the models, and checks what it can: all checksums.
DELTAWIRE_API Result<PatchFileInfo> inspect_patch_file(const std::string& patch_path);

}  // namespace deltawire
