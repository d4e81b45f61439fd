// A text file that is written from front to back, packed as its name says.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cli/outcome.h"
#include "cli/output_file.h"

namespace deltawire::cli {

// By libarchive, as linear/text_source.h reads it: .gz .xz .bz2 .zst; any other name, and "-", is plain text.
// The same text gives the same bytes with the same libraries.
class PackedOutput {
 public:
  // Errors: those of OutputFile::create; a libarchive that can't pack so.
  static Outcome<std::unique_ptr<PackedOutput>> create(const std::string& path, bool force);
  ~PackedOutput();  // without commit, no trace remains
  PackedOutput(const PackedOutput&) = delete;
  PackedOutput& operator=(const PackedOutput&) = delete;

  Outcome<void> write(std::string_view text);
  Outcome<void> commit();

 private:
  struct Packer;
  explicit PackedOutput(OutputFile file);

  OutputFile file_;
  std::unique_ptr<Packer> packer_;  // null: plain
};

}  // namespace deltawire::cli
