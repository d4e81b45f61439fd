// Ctrl-C in long work: what is done is kept.
#pragma once

namespace deltawire::cli {

inline constexpr int kExitInterrupted = 130;  // as shells and the demo have it

// From now on the first SIGINT or SIGTERM only makes interrupted() true; the second ends the program.
void catch_interrupts();

bool interrupted() noexcept;

}  // namespace deltawire::cli
