// Files on the disk: descriptors, spans read and written whole, files that have no name, and files that are
// in their place whole or not at all.
//
// Thread rule: values; one thread at a time. make_unnamed_file and NewFile::create read the environment and
// the process's mask of permissions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

// A file descriptor that is closed at its end.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) noexcept : number_(number) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const noexcept { return number_; }

 private:
  int number_;
};

// Errors: kIo, without the file's name: "cannot be written: <reason>". read_at gives fewer bytes at the end
// of the file alone.
Status write_all(int descriptor, Bytes bytes);
Status write_at(int descriptor, Bytes bytes, std::uint64_t offset);
Result<std::size_t> read_at(int descriptor, MutBytes out, std::uint64_t offset);

// A file in $TMPDIR, or else in /tmp, that has no name and is gone with its descriptor.
Result<Descriptor> make_unnamed_file();

// A file that is written beside its place, under another name, and then moved there, in the place of what was
// there. Without put_in_place no trace of it remains.
class NewFile {
 public:
  // Errors, all of this class: kIo, with the path. `path` is not looked at, its folder is written to.
  static Result<NewFile> create(const std::string& path);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  int descriptor() const noexcept { return descriptor_.get(); }       // valid also when it is in place
  const std::string& unfinished() const noexcept { return beside_; }  // its name until then; empty afterwards

  Status flush();         // to the disk
  Status put_in_place();  // what was flushed stands there after a power cut, too

 private:
  explicit NewFile(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::string beside_;
  Descriptor descriptor_;
  bool flushed_ = false;
};

}  // namespace deltawire
