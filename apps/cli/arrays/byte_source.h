// Bytes of an input, front to back: of a file, of a pipe, of an archive's member.
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

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills the span; fewer bytes are the last ones. Error messages lack the input's name.
  virtual Result<std::size_t> read(MutBytes out) = 0;

  // Of what is still to be read; nothing where that isn't known.
  virtual std::optional<std::uint64_t> bytes_left() const { return std::nullopt; }

  // Where the rest lies in a file that can be read in any order; copied to an unnamed one where it lies in
  // none. Valid as long as the source, which is read no more.
  struct Place {
    int descriptor = -1;
    std::uint64_t offset = 0;
  };
  virtual Result<Place> settle();

 private:
  Descriptor settled_;
};

// Bytes in memory, which outlives it.
class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(Bytes rest) : rest_(rest) {}

  Result<std::size_t> read(MutBytes out) override {
    const std::size_t bytes = std::min(out.size(), rest_.size());
    std::copy_n(rest_.begin(), bytes, out.begin());
    rest_ = rest_.subspan(bytes);
    return bytes;
  }
  Bytes rest() const noexcept { return rest_; }

 private:
  Bytes rest_;
};

// An input of the command line. A regular file can be read several times; so can a pipe once it is settled.
class InputFile {
 public:
  // "-" is standard input.
  static Outcome<InputFile> open(const std::string& path);

  const std::string& name() const noexcept { return name_; }
  bool is_regular() const noexcept { return regular_; }

  // Up to so many bytes from the front, which are read again later.
  Outcome<Bytes> peek(std::size_t bytes);

  // Copies a pipe to an unnamed file.
  Outcome<void> settle();

  // The input from its front. Once only where it isn't regular.
  std::unique_ptr<ByteSource> read();

 private:
  explicit InputFile(std::string name) : name_(std::move(name)) {}

  std::string name_;
  Descriptor owned_;  // none for standard input
  int descriptor_ = -1;
  bool regular_ = false;
  std::uint64_t begin_ = 0;  // of a regular file: where it stood
  std::uint64_t end_ = 0;
  std::vector<std::byte> peeked_;
};

// Reads a whole file, or standard input for "-".
Outcome<std::vector<std::byte>> read_input(const std::string& path);

}  // namespace deltawire::cli
