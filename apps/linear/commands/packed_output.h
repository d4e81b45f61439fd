// A text file written sequentially, compressed as its name says.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cli/outcome.h"
#include "cli/output_file.h"

namespace deltawire::linear {

// Compresses .gz .xz .bz2 .zst with libarchive; any other name, and "-", is plain text. The same text gives
// the same bytes with the same libraries.
class PackedOutput {
 public:
  // Errors: those of OutputFile::create; a libarchive without this compression.
  static cli::Outcome<std::unique_ptr<PackedOutput>> create(const std::string& path, bool force);
  ~PackedOutput();  // without commit, removes the unfinished file
  PackedOutput(const PackedOutput&) = delete;
  PackedOutput& operator=(const PackedOutput&) = delete;

  cli::Outcome<void> write(std::string_view text);
  cli::Outcome<void> commit();

 private:
  struct Packer;
  explicit PackedOutput(cli::OutputFile file);

  cli::OutputFile file_;
  std::unique_ptr<Packer> packer_;  // null: plain
};

}  // namespace deltawire::linear
