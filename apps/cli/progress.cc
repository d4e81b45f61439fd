#include "cli/progress.h"

#include <cstdio>

#include <unistd.h>

#include "deltawire/result.h"

namespace deltawire::cli {
namespace {

constexpr std::size_t kLineBytes = 78;  // a longer one would wrap, and stay

}  // namespace

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  show("");
}

void Progress::show(const std::string& text) {
  if (!terminal_) return;
  const std::string line = "\r" + printable_line(text, kLineBytes) + "\033[K";
  std::fputs(line.c_str(), stderr);
}

void Progress::show_stage(const std::string& text) {
  if (terminal_) return show(text);
  const std::string line = printable_line(text, kLineBytes) + "\n";
  std::fputs(line.c_str(), stderr);
}

}  // namespace deltawire::cli
