// The file of a rank's checkpoint: a head, arrays one after another, and a checksum of all.
// apps/linear/README.md describes the format. Numbers are in the machine's byte order; a machine with
// the other one does not recognize the file.
//
// Errors of all members: kIo; kCorrupt for a file that is not a checkpoint, or was truncated or changed;
// kUnsupportedVersion. Messages have the path. Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/disk_file.h"
#include "deltawire/result.h"

namespace deltawire::linear {

struct CheckpointHead {
  std::uint64_t step = 0;  // steps done
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint32_t data = 0;  // BlockStore::checksum of the rank's rows
  std::string settings;    // of the training
};

// Writes next to `path`; finish() flushes the file to disk and moves it to `path`.
class CheckpointWriter {
 public:
  static Result<CheckpointWriter> create(const std::string& path, const CheckpointHead& head);

  template <class T>
  Status values(std::span<const T> values) {
    const std::uint64_t count = values.size();
    Status done = put(std::as_bytes(std::span(&count, 1)));
    return done ? put(std::as_bytes(values)) : done;
  }
  Status finish();

 private:
  CheckpointWriter(std::string path, NewFile file) : path_(std::move(path)), file_(std::move(file)) {}
  Status put(Bytes bytes);

  std::string path_;
  NewFile file_;
  std::uint32_t checksum_ = 0;
};

class CheckpointReader {
 public:
  // Reads the whole file once to verify its checksum.
  static Result<CheckpointReader> open(const std::string& path);

  const CheckpointHead& head() const noexcept { return head_; }
  const std::string& path() const noexcept { return path_; }

  // Reads the next array. Allocates only as much as the file has.
  template <class T>
  Status values(std::vector<T>& out) {
    std::uint64_t count = 0;
    if (Status got = take(std::as_writable_bytes(std::span(&count, 1))); !got) return got;
    if (count > (end_ - at_) / sizeof(T)) return damaged("ends early");
    out.resize(count);
    return take(std::as_writable_bytes(std::span(out)));
  }
  // The same for exactly as many values as `out` has; another number is an error.
  template <class T>
  Status values_into(std::span<T> out) {
    std::vector<T> found;
    if (Status got = values(found); !got) return got;
    if (found.size() != out.size()) return damaged("has arrays of other lengths");
    std::copy(found.begin(), found.end(), out.begin());
    return {};
  }
  Status end() const;  // kCorrupt if bytes are left
  tl::unexpected<Error> damaged(const std::string& what) const;

 private:
  CheckpointReader(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  Status check_bytes();
  Status read_head();
  Status take(MutBytes out);

  std::string path_;
  Descriptor file_;
  CheckpointHead head_;
  std::uint64_t at_ = 0;
  std::uint64_t end_ = 0;  // of the arrays
};

}  // namespace deltawire::linear
