// Python callables that hear of buckets' ends, on a thread of their own: the communication thread never waits
// for Python's lock (the GIL), which another thread may hold for milliseconds each time.
#pragma once

#include <list>
#include <memory>
#include <utility>

#include <nanobind/nanobind.h>

#include "deltawire/reducer.h"
#include "deltawire/result.h"

namespace deltawire::python {

// A callable and its arguments.
struct Completion {
  explicit Completion(nanobind::callable called) : function(std::move(called)) {}
  // Calls function(error or None, report or None). What it raises has nobody to go to: it is shown as
  // unraisable. REQUIRES: the GIL.
  void call() const;

  nanobind::callable function;
  Result<Report> outcome;
};

// Calls the functions of one session, in the order of `add`. The thread takes the GIL once for all that has
// ended until then. Once the interpreter is gone nothing is called.
// Thread rule: any thread may call any member; `stop` is called without the GIL.
class Completions {
 public:
  // A list of one, so that `add` needs no memory.
  using One = std::list<Completion>;

  // Raises if no thread can be started. REQUIRES: the GIL.
  Completions();
  // stop(), if that was not called. In a forked child, where the thread is missing, it leaks.
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  void add(One& completion) noexcept;  // which is empty afterwards
  // Returns when all that was added has been called; at once on the thread itself. Nothing is added from here
  // on. Idempotent.
  void stop() noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace deltawire::python
