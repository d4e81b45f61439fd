// Zip archives of arrays: .npz, which holds .npy files, and .dwz, which holds .dw files. By libarchive.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli/arrays/byte_source.h"
#include "cli/outcome.h"

struct archive;

namespace deltawire::cli {

inline constexpr std::string_view kZipMagic = "PK";  // the first bytes of a zip file

// Reads members one after another, and is the source of the current one.
class ArchiveReader final : public ByteSource {
 public:
  // `input` is regular or settled, and outlives the reader.
  static std::unique_ptr<ArchiveReader> open(InputFile& input);

  // Moves to the next member and returns its name, or nothing at the end.
  std::optional<std::string> next();

  Result<std::size_t> read(MutBytes out) override;
  std::optional<std::uint64_t> bytes_left() const override { return left_; }

 private:
  struct Free {
    void operator()(archive* reader) const noexcept;
  };
  explicit ArchiveReader(std::string name);

  std::string name_;
  std::unique_ptr<archive, Free> archive_;
  std::optional<std::uint64_t> left_;
};

// Writes members without compression: their contents are compressed already, or will be read in place.
class ArchiveWriter {
 public:
  using Write = std::function<void(Bytes)>;

  static ArchiveWriter begin(Write write);
  ArchiveWriter(ArchiveWriter&&) noexcept;
  ~ArchiveWriter();

  // Starts a member of `bytes` bytes, all of which must be written before the next.
  void add(const std::string& name, std::uint64_t bytes);
  void write(Bytes bytes);
  void finish();

 private:
  struct State;
  explicit ArchiveWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deltawire::cli
