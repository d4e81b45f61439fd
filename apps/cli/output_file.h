// An output that is there whole or not at all: written beside its place, then moved there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/disk_file.h"
#include "cli/outcome.h"
#include "deltawire/tensor.h"

namespace deltawire::cli {

// While one exists, SIGINT, SIGTERM, SIGHUP and their like remove the unfinished file before they end the
// program. One at a time.
class OutputFile {
 public:
  // "-" is standard output. Fails when `path` exists (unless `force`), isn't a regular file, or its folder
  // can't be written to: before any work is done. Fails, whatever `force` says, where it is one of the
  // `inputs`
  // ("-" is standard input), by another name or a link, too.
  static Outcome<OutputFile> create(const std::string& path, bool force,
                                    const std::vector<std::string>& inputs = {});

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // without commit, no trace remains

  Outcome<void> write(Bytes bytes);
  Outcome<void> flush();  // to the disk, where what is committed next must outlive a power cut
  Outcome<void> commit();

 private:
  OutputFile(std::string path, bool force) : path_(std::move(path)), force_(force) {}

  Outcome<void> open_unfinished();

  std::string path_;
  bool force_ = false;
  std::optional<NewFile> file_;  // none: standard output
};

// All of them can be written, found out before the work; none is named twice, "-" neither.
Outcome<void> check_outputs(const std::vector<std::string>& paths, bool force);

// A whole text at once; nothing where `path` is empty.
Outcome<void> write_output(const std::string& path, const std::string& text, bool force);

// The stream for what a command tells the user: standard error when standard output carries the file.
std::ostream& report_stream(const std::string& output_path);

}  // namespace deltawire::cli
