// Keeps signals away from threads and calls that can't handle them.
#pragma once

#include <csignal>
#include <ctime>

#include <pthread.h>

namespace deltawire {

// While it exists, this thread takes no signal, and a thread started meanwhile never does: the program's own
// threads must handle signals, because its handlers don't expect to run on the library's threads.
class SignalsHeldBack {
 public:
  SignalsHeldBack() noexcept {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsHeldBack() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeldBack(const SignalsHeldBack&) = delete;
  SignalsHeldBack& operator=(const SignalsHeldBack&) = delete;

 private:
  sigset_t before_;
};

// While it exists, this thread's writes to a closed connection return an error and raise no SIGPIPE: for
// libraries that write without MSG_NOSIGNAL.
class BrokenPipesHeldBack {
 public:
  BrokenPipesHeldBack() noexcept {
    sigset_t pending;
    sigpending(&pending);
    pending_before_ = sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &broken_pipe(), &before_);
  }
  ~BrokenPipesHeldBack() {
    const timespec at_once{};
    if (!pending_before_) (void)::sigtimedwait(&broken_pipe(), nullptr, &at_once);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BrokenPipesHeldBack(const BrokenPipesHeldBack&) = delete;
  BrokenPipesHeldBack& operator=(const BrokenPipesHeldBack&) = delete;

 private:
  static const sigset_t& broken_pipe() noexcept {
    static const sigset_t set = [] {
      sigset_t one;
      sigemptyset(&one);
      sigaddset(&one, SIGPIPE);
      return one;
    }();
    return set;
  }

  sigset_t before_;
  bool pending_before_ = false;
};

}  // namespace deltawire
