// The text of a data file: plain, or as gzip, xz, bzip2 and zstd pack it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deltawire/result.h"

namespace deltawire::linear {

struct DataFile {
  std::string path;          // "-" is standard input
  bool plain = false;        // a regular file that isn't compressed: read from anywhere, in parts
  std::uint64_t bytes = 0;   // as it lies on disk
  std::int64_t changed = 0;  // nanoseconds since 1970; with `bytes`, what tells that a cache is of this file

  std::string name() const { return path == "-" ? "standard input" : path; }
};

// The files that the patterns name, each pattern's in alphabetical order: paths, paths with * ? [] in them,
// and %d or %04d for a number. Errors (kIo): a pattern without a file; a file that is a folder or can't be
// opened.
Result<std::vector<DataFile>> find_data_files(std::span<const std::string> patterns);

class TextSource {
 public:
  virtual ~TextSource() = default;

  // Fills `out`; fewer bytes are the last ones. Error messages lack the file's name.
  virtual Result<std::size_t> read(std::span<char> out) = 0;
};

// From the byte `offset` on, which is 0 for files that aren't plain.
Result<std::unique_ptr<TextSource>> open_text(const DataFile& file, std::uint64_t offset);

}  // namespace deltawire::linear
