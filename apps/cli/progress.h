// A line on standard error that says what is under way.
#pragma once

#include <string>

namespace deltawire::cli {

class Progress {
 public:
  Progress();
  ~Progress();  // the line is gone
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text);  // on a terminal alone
  // A stage that others follow. Where no terminal is, it has a line of its own, which stays.
  void show_stage(const std::string& text);

 private:
  bool terminal_;
};

}  // namespace deltawire::cli
