// A thread of control that runs until it gives control back.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <ucontext.h>

namespace deltawire::simulation {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs it until it calls pause(), or ends. Returns whether it has ended.
  bool resume();
  // Called by the fiber itself.
  void pause();

 private:
  static void enter(unsigned high, unsigned low);
  void begin();

  std::function<void()> body_;
  std::byte* stack_;
  ucontext_t own_{};
  ucontext_t caller_{};
  bool ended_ = false;
  // For AddressSanitizer, which must know whose stack it looks at.
  void* own_fake_stack_ = nullptr;
  void* caller_fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  std::size_t caller_stack_bytes_ = 0;
};

}  // namespace deltawire::simulation
