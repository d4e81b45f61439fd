#include "cli/interrupt.h"

#include <array>
#include <csignal>

namespace deltawire::cli {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

extern "C" void note_interrupt(int) {
  g_interrupted = 1;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = note_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (const int number : std::array{SIGINT, SIGTERM}) {
    struct sigaction before{};
    sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
}

bool interrupted() noexcept {
  return g_interrupted != 0;
}

}  // namespace deltawire::cli
