// The arrays of an input: of a .npy or .dw file, or of a zip archive of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/arrays/array_reader.h"
#include "cli/arrays/byte_source.h"
#include "cli/outcome.h"

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

}  // namespace deltawire::cli
