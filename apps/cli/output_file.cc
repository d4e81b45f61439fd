#include "cli/output_file.h"

#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include "cli/trace/trace.h"

namespace deltawire::cli {
namespace {

// Signals of the user, of resource limits, and of a file that was truncated while mapped.
constexpr std::array kEndingSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGXFSZ, SIGBUS};

// The unfinished file, where a signal handler can read it: a handler may use neither locks nor allocation.
std::array<char, 4096> g_unfinished{};

extern "C" void remove_unfinished(int signal_number) {
  if (g_unfinished[0] != '\0') unlink(g_unfinished.data());
  // SA_RESETHAND has put the default action back: the program ends as if it had no handler.
  raise(signal_number);
}

void handle_ending_signals() {
  struct sigaction action{};
  action.sa_handler = remove_unfinished;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal_number : kEndingSignals) {
    struct sigaction before{};
    sigaction(signal_number, nullptr, &before);
    // nohup stays nohup, and a program that only notes signals (catch_interrupts) goes on doing so.
    if (before.sa_handler == SIG_DFL) sigaction(signal_number, &action, nullptr);
  }
}

// Holds the ending signals back while the unfinished file and its name change together.
class SignalPause {
 public:
  SignalPause() {
    sigset_t ending;
    sigemptyset(&ending);
    for (const int signal_number : kEndingSignals) sigaddset(&ending, signal_number);
    sigprocmask(SIG_BLOCK, &ending, &before_);
  }
  ~SignalPause() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalPause(const SignalPause&) = delete;
  SignalPause& operator=(const SignalPause&) = delete;

 private:
  sigset_t before_{};
};

void check_place(const std::string& path, bool force) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return;  // free, or beyond reach: creating the file will tell
  if (S_ISDIR(info.st_mode)) throw failed(path + ": is a folder; name a file in it");
  if (!S_ISREG(info.st_mode)) {
    throw failed(path + ": is not a regular file; name one, or give - for standard output");
  }
  if (!force) throw failed(path + ": exists already; give another name, or --force to replace it");
}

bool status_of(const std::string& path, int descriptor_of_dash, struct stat& info) {
  return path == "-" ? fstat(descriptor_of_dash, &info) == 0 : stat(path.c_str(), &info) == 0;
}

// Hard and symbolic links are seen through.
void check_inputs(const std::string& path, const std::vector<std::string>& inputs) {
  struct stat output{};
  if (!status_of(path, STDOUT_FILENO, output) || !S_ISREG(output.st_mode)) return;
  for (const std::string& name : inputs) {
    for (const std::string& file : {name, name + "/" + kTraceContents}) {
      struct stat input{};
      if (!status_of(file, STDIN_FILENO, input)) continue;
      if (input.st_dev == output.st_dev && input.st_ino == output.st_ino) {
        throw failed(output_name(path) + ": is the input itself; give the output another name");
      }
    }
  }
}

}  // namespace

OutputFile OutputFile::create(const std::string& path, bool force, const std::vector<std::string>& inputs) {
  OutputFile file(path, force);
  check_inputs(path, inputs);
  if (path == "-") {
    if (isatty(STDOUT_FILENO) == 1) {
      throw failed(
          "standard output is a terminal, which can't show these bytes; send it to a file or a pipe");
    }
    return file;
  }
  check_place(path, force);
  // --force through a symbolic link replaces what it points to, not the link.
  std::error_code not_there;
  const std::filesystem::path resolved = std::filesystem::canonical(path, not_there);
  if (!not_there) file.path_ = resolved.string();
  file.open_unfinished();
  return file;
}

void OutputFile::open_unfinished() {
  if (path_.size() + sizeof ".XXXXXX" > g_unfinished.size()) {
    throw failed(path_ + ": the path is too long; shorten it");
  }
  const SignalPause pause;
  file_.emplace(value_or_failed(NewFile::create(path_)));
  std::memcpy(g_unfinished.data(), file_->unfinished().c_str(), file_->unfinished().size() + 1);
  handle_ending_signals();
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), force_(other.force_), file_(std::exchange(other.file_, std::nullopt)) {}

OutputFile::~OutputFile() {
  if (!file_ || file_->unfinished().empty()) return;
  const SignalPause pause;
  file_.reset();
  g_unfinished[0] = '\0';
}

void OutputFile::write(Bytes bytes) {
  const Status written = write_all(file_ ? file_->descriptor() : STDOUT_FILENO, bytes);
  if (!written) throw failed(output_name(path_) + ": " + written.error().message);
}

void OutputFile::commit() {
  if (!file_) return;
  check_place(path_, force_);  // it may have been created meanwhile
  const SignalPause pause;
  const Status done = file_->put_in_place();
  if (file_->unfinished().empty()) g_unfinished[0] = '\0';
  throw_if_failed(done);
}

void check_outputs(const std::vector<std::string>& paths, bool force,
                   const std::vector<std::string>& inputs) {
  std::set<std::filesystem::path> taken;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    std::error_code unknown;
    if (!taken.insert(std::filesystem::weakly_canonical(path, unknown)).second)
      throw misused(output_name(path) + " can't carry two files; name another");
    if (path == "-") continue;
    (void)OutputFile::create(path, force, inputs);
  }
}

void write_output(const std::string& path, const std::string& text, bool force) {
  if (path.empty()) return;
  if (path == "-") {
    std::cout << text;
    return;
  }
  auto output = OutputFile::create(path, force);
  output.write(std::as_bytes(std::span(text)));
  output.commit();
}

std::ostream& report_stream(const std::string& output_path) {
  return output_path == "-" ? std::cerr : std::cout;
}

}  // namespace deltawire::cli
