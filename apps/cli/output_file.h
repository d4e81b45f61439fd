// An output file that is written completely or not at all: under a temporary name, then renamed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/disk_file.h"
#include "cli/outcome.h"
#include "deltawire/tensor.h"

namespace deltawire::cli {

// While one exists, SIGINT, SIGTERM, SIGHUP and similar signals remove the unfinished file before they end
// the program, unless they have a handler already (catch_interrupts). One at a time.
class OutputFile {
 public:
  // "-" is standard output. Fails, before any work is done, if `path` exists (unless `force`), is not a
  // regular file, or its folder is not writable; and, even with `force`, if it is one of the `inputs` ("-" is
  // standard input; of a trace its trace.json), under whatever name or link.
  static OutputFile create(const std::string& path, bool force, const std::vector<std::string>& inputs = {});

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // without commit, removes the unfinished file

  void write(Bytes bytes);
  // To disk, for a commit that must survive a power failure.
  void flush() {
    if (file_) throw_if_failed(file_->flush());
  }
  void commit();

 private:
  OutputFile(std::string path, bool force) : path_(std::move(path)), force_(force) {}

  void open_unfinished();

  std::string path_;
  bool force_ = false;
  std::optional<NewFile> file_;  // none: standard output
};

// Checks before any work that all outputs can be written and none is named twice, including "-";
// an empty path is no output. `inputs`: of OutputFile::create.
void check_outputs(const std::vector<std::string>& paths, bool force, const std::vector<std::string>& inputs);

// Writes a whole text; does nothing if `path` is empty.
void write_output(const std::string& path, const std::string& text, bool force);

// The stream for messages to the user: standard error if standard output carries the file.
std::ostream& report_stream(const std::string& output_path);

}  // namespace deltawire::cli
