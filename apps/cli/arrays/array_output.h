// What encode and decode write: one array's bytes, or an archive of several arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/arrays/archive.h"
#include "cli/arrays/array_file.h"
#include "cli/number_text.h"
#include "cli/output_file.h"

namespace deltawire::cli {

class ArrayOutput {
 public:
  // `file` outlives it, and is the caller's to commit.
  static Outcome<ArrayOutput> begin(OutputFile& file, bool archive);

  // The next array; its size where it is known before. `name` is a member's, of no use outside archives.
  Outcome<void> open(const std::string& name, std::optional<std::uint64_t> bytes);
  Outcome<void> write(Bytes bytes);
  Outcome<void> close();  // the array
  Outcome<void> finish();

  std::uint64_t bytes() const noexcept { return bytes_; }  // of all arrays, the archive's own left out

 private:
  explicit ArrayOutput(OutputFile& file) : file_(&file) {}

  OutputFile* file_;
  std::optional<ArchiveWriter> archive_;
  std::string name_;    // of a member
  Descriptor waiting_;  // it, where its size isn't known: a member's size stands before it
  std::uint64_t bytes_ = 0;
};

// The last word of encode, of an input of .npy files, and of decode, of .dw files: how many arrays and
// values, and of how many bytes they have become how many.
void report_coded(const ArrayFile& input, FileKind kind, const std::string& output_path,
                  const FileSize& size);

}  // namespace deltawire::cli
