// Long-running commands: a progress line on standard error, and Ctrl-C, which keeps the results so far.
#pragma once

#include <string>

namespace deltawire::cli {

class Progress {
 public:
  Progress();
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text);  // only on a terminal
  // A stage of several. Without a terminal it is printed as a line of its own.
  void show_stage(const std::string& text);

 private:
  bool terminal_;
};

inline constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as shells have it

// From now on the first SIGINT, SIGTERM or SIGHUP only sets interrupted(); the second ends the program.
void catch_interrupts();

bool interrupted() noexcept;

}  // namespace deltawire::cli
