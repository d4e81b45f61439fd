// Sequential bytes of an input: a file, a pipe, or a member of an archive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/disk_file.h"
#include "cli/outcome.h"
#include "deltawire/tensor.h"

namespace deltawire::cli {

inline constexpr std::size_t kCopyBlockBytes = std::size_t{1} << 20;

// What is no regular file may never end, so no more than this is kept of it, in memory or on a disk: an array
// of 2^26 float32.
inline constexpr std::uint64_t kPipedBytesMost = std::uint64_t{1} << 28;

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills the span; fewer bytes are the last ones. Error messages lack the input's name.
  virtual Result<std::size_t> read(MutBytes out) = 0;

  // Bytes still to be read; nothing if unknown.
  virtual std::optional<std::uint64_t> bytes_left() const { return std::nullopt; }

  // The rest as a part of a seekable file; copied to an unnamed file if it is not in one, which fails
  // (kLimit) if more comes than bytes_left() and than kPipedBytesMost. Valid as long as the source, which
  // must not be read any more.
  struct Place {
    int descriptor = -1;
    std::uint64_t offset = 0;
  };
  virtual Result<Place> settle();

 private:
  Descriptor settled_;
};

// Bytes in memory, which must outlive the source.
class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(Bytes rest) : rest_(rest) {}

  Result<std::size_t> read(MutBytes out) override {
    const std::size_t bytes = std::min(out.size(), rest_.size());
    std::copy_n(rest_.begin(), bytes, out.begin());
    rest_ = rest_.subspan(bytes);
    return bytes;
  }
  std::optional<std::uint64_t> bytes_left() const override { return rest_.size(); }

 private:
  Bytes rest_;
};

// An input file. A regular file can be read several times; so can a pipe after settle().
class InputFile {
 public:
  // "-" is standard input.
  static InputFile open(const std::string& path);

  const std::string& name() const noexcept { return name_; }

  // Up to `bytes` bytes from the front, which read() gives again.
  Bytes peek(std::size_t bytes);

  // Copies a pipe to an unnamed file. Fails if more than kPipedBytesMost comes.
  void settle();

  // Reads the input from its start. Only once if it is not regular.
  std::unique_ptr<ByteSource> read();

 private:
  explicit InputFile(std::string name) : name_(std::move(name)) {}

  std::string name_;
  Descriptor owned_;  // none for standard input
  int descriptor_ = -1;
  bool regular_ = false;
  std::uint64_t begin_ = 0;  // of a regular file: the offset at open()
  std::uint64_t end_ = 0;
  std::vector<std::byte> peeked_;
};

// Reads a whole file, or standard input for "-". Fails if more comes than the file had when it was opened and
// than kPipedBytesMost.
std::vector<std::byte> read_input(const std::string& path);

}  // namespace deltawire::cli
