// For tests: a system that starts no more threads, as in a container whose limit is reached.
#pragma once

#include <cstddef>

#include <pthread.h>

namespace deltawire::testing {

// While it exists, std::thread throws std::system_error: no stack of the size that it sets can be had.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t attributes = before_;
    pthread_attr_setstacksize(&attributes, std::size_t{1} << 56);
    pthread_setattr_default_np(&attributes);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_ = {};
};

}  // namespace deltawire::testing
