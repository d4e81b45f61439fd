// Input and output files of arrays: .npy or .dw files, or zip archives of them.
#pragma once

#include <cstdint>
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
  // An array, not yet opened: it may be invalid.
  struct Member {
    std::string name;  // without .npy or .dw; empty if the file is one array
    FileKind kind = FileKind::kNpy;
    std::string shown;  // for messages: "grads.npz: conv1.npy"
  };

  // Recognizes the file by its first bytes, not by its name, and members of archives by the ends of their
  // names.
  static ArrayFile open(const std::string& path);

  const std::string& name() const noexcept { return input_.name(); }
  bool is_archive() const noexcept { return archive_; }
  const std::vector<Member>& members() const noexcept { return members_; }

  // The bytes of a member. From a pipe only once.
  std::unique_ptr<ByteSource> bytes_of(const Member& member);

  // The array of a member, which this file must outlive.
  std::unique_ptr<ArrayReader> array(const Member& member);

 private:
  explicit ArrayFile(InputFile input) : input_(std::move(input)) {}
  void list_members();

  InputFile input_;
  bool archive_ = false;
  std::vector<Member> members_;
};

// Fails unless all members are of this kind.
void require_kind(const ArrayFile& file, FileKind kind);

// One array, or an archive of several.
class ArrayOutput {
 public:
  // `file` outlives the output, and the caller commits it.
  static ArrayOutput begin(OutputFile& file, bool archive);

  // Starts the next array, with its size if known. `name` is that of the archive's member.
  void open(const std::string& name, std::optional<std::uint64_t> bytes);
  void write(Bytes bytes);
  void close();  // ends the array
  void finish() {
    if (archive_) archive_->finish();
  }

  std::uint64_t bytes() const noexcept { return bytes_; }  // of all arrays, without the archive's overhead

 private:
  explicit ArrayOutput(OutputFile& file) : file_(&file) {}

  OutputFile* file_;
  std::optional<ArchiveWriter> archive_;
  std::string name_;    // of a member
  Descriptor waiting_;  // its bytes if the size is unknown, since a member's size comes first
  std::uint64_t bytes_ = 0;
};

// Prints the summary of encode (`kind` kNpy) and decode (kDw): arrays, values, and bytes before and after.
void report_coded(const ArrayFile& input, FileKind kind, const std::string& output_path,
                  const FileSize& size);

}  // namespace deltawire::cli
