// Files on disk: descriptors, complete reads and writes of spans, unnamed files, and files that are written
// completely or not at all.
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

// A file descriptor that its destructor closes.
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

// Errors: kIo, without the file's name: "cannot be written: <reason>". read_next (from where the descriptor
// stands; pipes, too) and read_at return fewer bytes only at the end.
Status write_all(int descriptor, Bytes bytes);
Status write_at(int descriptor, Bytes bytes, std::uint64_t offset);
Result<std::size_t> read_next(int descriptor, MutBytes out);
Result<std::size_t> read_at(int descriptor, MutBytes out, std::uint64_t offset);

// Makes the names in a folder survive a power failure. Where the file system flushes no folders (some over a
// network), or this one may be written and not be read, that can't be had, and is no error. Errors: kIo.
Status flush_folder(const std::string& folder);

// A file in $TMPDIR, or else in /tmp, that has no name and disappears when its descriptor is closed.
Result<Descriptor> make_unnamed_file();

// A file that is written under a temporary name next to its path, and then replaces what is there. Without
// put_in_place it is removed.
class NewFile {
 public:
  // Errors of all members: kIo, with the path. `path` itself is not accessed; its folder must be writable.
  static Result<NewFile> create(const std::string& path);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  int descriptor() const noexcept { return descriptor_.get(); }       // remains valid after put_in_place
  const std::string& unfinished() const noexcept { return beside_; }  // the temporary name; empty afterwards

  Status flush();         // to the disk
  Status put_in_place();  // what was flushed survives a power failure

 private:
  explicit NewFile(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::string beside_;
  Descriptor descriptor_;
  bool flushed_ = false;
};

}  // namespace deltawire
