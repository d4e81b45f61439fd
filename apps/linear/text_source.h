// The text of a data file: plain, or packed by gzip, xz, bzip2 or zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/disk_file.h"
#include "deltawire/result.h"

namespace deltawire::linear {

struct DataFile {
  std::string path;         // "-" is standard input
  bool plain = false;       // a regular, uncompressed file, which can be read from any offset
  std::uint64_t bytes = 0;  // its size on disk

  std::string name() const { return path == "-" ? "standard input" : path; }
};

// Finds the files of the patterns, those of each pattern in alphabetical order. A pattern is a path, which
// may have * ? [] in it. Errors (kIo): no file matches; a file is a folder or cannot be opened.
Result<std::vector<DataFile>> find_data_files(std::span<const std::string> patterns);

class TextSource {
 public:
  virtual ~TextSource() = default;

  // Fills `out`; fewer bytes are the last ones. Error messages lack the file's name.
  virtual Result<std::size_t> read(std::span<char> out) = 0;
};

// Opens the text from byte `offset` on, which must be 0 for files that are not plain.
Result<std::unique_ptr<TextSource>> open_text(const DataFile& file, std::uint64_t offset);

// Whether gzip, xz, bzip2 or zstd has packed what begins with these bytes; six are enough.
bool is_packed(std::string_view front) noexcept;

// Opens text packed by gzip, xz, bzip2 or zstd, or plain text, told by the first bytes. Verifies the
// checksums and lengths of the format, reads concatenated members (streams, frames) one after another, and
// refuses bytes that belong to none. Errors, also of read(): kIo, without the file's name.
//
// gzip is unpacked by zlib, since libarchive skips a member's CRC-32 and length without comparing them.
Result<std::unique_ptr<TextSource>> open_packed(Descriptor file);

}  // namespace deltawire::linear
