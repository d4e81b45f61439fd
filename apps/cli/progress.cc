#include "cli/progress.h"

#include <array>
#include <csignal>
#include <cstdio>

#include <unistd.h>

#include "deltawire/result.h"

namespace deltawire::cli {
namespace {

constexpr std::size_t kLineBytes = 78;  // a longer one would wrap, and stay

volatile std::sig_atomic_t g_interrupted = 0;

extern "C" void note_interrupt(int) {
  g_interrupted = 1;
}

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

void catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = note_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (const int number : std::array{SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before{};
    sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
}

bool interrupted() noexcept {
  return g_interrupted != 0;
}

}  // namespace deltawire::cli
