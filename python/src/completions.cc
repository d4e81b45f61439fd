#include "completions.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include <unistd.h>

#include "bindings.h"
#include "python_error.h"

namespace nb = nanobind;

namespace deltawire::python {
namespace {

// The GIL, from time to time, on one thread with one Python thread state: to make a state takes longer than
// most callables do. Nothing is had once the interpreter is gone.
class OccasionalGil {
 public:
  OccasionalGil() = default;
  ~OccasionalGil() {
    if (saved_ == nullptr || !interpreter_is_up()) return;
    PyEval_RestoreThread(saved_);
    PyGILState_Release(state_);
  }
  OccasionalGil(const OccasionalGil&) = delete;
  OccasionalGil& operator=(const OccasionalGil&) = delete;

  void with(auto call) {
    if (saved_ == nullptr) {
      state_ = PyGILState_Ensure();
    } else {
      PyEval_RestoreThread(saved_);
    }
    call();
    saved_ = PyEval_SaveThread();
  }

 private:
  PyGILState_STATE state_{};
  PyThreadState* saved_ = nullptr;
};

}  // namespace

void Completion::call() const {
  try {
    if (outcome) {
      function(nb::none(), nb::cast(*outcome));
    } else {
      function(make_exception(outcome.error()), nb::none());
    }
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("the completion callback of a deltawire bucket");
  } catch (const std::exception& error) {  // past this thread's end it would end the program
    PyErr_SetString(PyExc_RuntimeError, error.what());
    PyErr_WriteUnraisable(nullptr);
  }
}

struct Completions::State {
  void run();

  const pid_t home = ::getpid();
  std::mutex mutex;
  std::condition_variable changed;
  std::list<Completion> ended;  // guarded by mutex
  bool stopping = false;        // guarded by mutex
  std::mutex joining;           // held while the thread is joined
  std::thread thread;
};

// Until all is called that was added before stop().
void Completions::State::run() {
  OccasionalGil gil;
  while (true) {
    std::list<Completion> taken;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return stopping || !ended.empty(); });
      if (ended.empty()) return;
      taken.swap(ended);
    }
    if (!interpreter_is_up()) {
      [[maybe_unused]] const auto* leaked = new std::list<Completion>(std::move(taken));
      return;
    }
    gil.with([&] {
      for (const Completion& each : taken) each.call();
      taken.clear();
    });
  }
}

Completions::Completions() : state_(std::make_shared<State>()) {
  try {
    state_->thread = std::thread([state = state_] { state->run(); });
  } catch (const std::system_error& error) {
    raise({ErrorCode::kSystem, std::string("no thread for the session: ") + error.what()});
  }
}

Completions::~Completions() {
  if (state_->home != ::getpid()) {
    [[maybe_unused]] const auto* leaked = new std::shared_ptr<State>(std::move(state_));
    return;
  }
  stop();
  // Dropped by a callable, on the thread, which can't join itself.
  if (state_->thread.joinable()) state_->thread.detach();
}

void Completions::add(One& completion) noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->ended.splice(state_->ended.end(), completion);
  state_->changed.notify_one();
}

void Completions::stop() noexcept {
  if (state_->home != ::getpid()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_one();
  }
  if (state_->thread.get_id() == std::this_thread::get_id()) return;
  const std::lock_guard one_at_a_time(state_->joining);
  if (state_->thread.joinable()) state_->thread.join();
}

}  // namespace deltawire::python
