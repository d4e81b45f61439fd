// A line on standard error that says what is under way; on a terminal alone.
#pragma once

#include <string>

namespace deltawire::cli {

class Progress {
 public:
  Progress();
  ~Progress();  // the line is gone
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text);

 private:
  bool shown_;
};

}  // namespace deltawire::cli
