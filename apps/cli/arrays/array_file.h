// The arrays of an input and of an output: .npy or .dw files, or a zip archive of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/arrays/archive.h"
#include "cli/arrays/array_reader.h"
#include "cli/arrays/byte_source.h"
#include "cli/number_text.h"
#include "cli/outcome.h"
#include "cli/output_file.h"

namespace deltawire::cli {

enum class FileKind : std::uint8_t { kNpy, kDw };

class ArrayFile {
 public:
  // An array, or what will turn out to be none when it is opened.
  struct Member {
    std::string name;  // without .npy or .dw; empty: the file is one array
    FileKind kind = FileKind::kNpy;
    std::string shown;  // for messages: "grads.npz: conv1.npy"
  };

  // Goes by the first bytes, not by the path's name. Members of archives are told by the ends of their names.
  static Outcome<ArrayFile> open(const std::string& path);

  const std::string& name() const noexcept { return input_.name(); }
  bool is_archive() const noexcept { return archive_; }
  const std::vector<Member>& members() const noexcept { return members_; }

  // The bytes of a member, which of a pipe can be had once.
  Outcome<std::unique_ptr<ByteSource>> bytes_of(const Member& member);

  // It is read while this file is there.
  Outcome<std::unique_ptr<ArrayReader>> array(const Member& member);

 private:
  explicit ArrayFile(InputFile input) : input_(std::move(input)) {}
  Outcome<void> list_members();

  InputFile input_;
  bool archive_ = false;
  std::vector<Member> members_;
};

// Fails unless all members are of this kind, which the message calls "a .dw file", for instance.
Outcome<void> require_kind(const ArrayFile& file, FileKind kind);

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
