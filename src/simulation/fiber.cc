#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "simulation/scheduler.h"

// Present where AddressSanitizer is linked, even if this file is compiled without it.
// NOLINTBEGIN(bugprone-reserved-identifier): the sanitizer's own names.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, std::size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, std::size_t* bytes);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace deltawire::simulation {
namespace {

constexpr std::size_t kStackBytes = std::size_t{512} << 10;
constexpr std::size_t kGuardBytes = 4096;

// Stacks of earlier fibers: mapping new ones takes longer than most runs.
std::vector<std::byte*>& spare_stacks() {
  static std::vector<std::byte*> spare;
  return spare;
}

std::byte* take_stack() {
  auto& spare = spare_stacks();
  if (!spare.empty()) {
    std::byte* stack = spare.back();
    spare.pop_back();
    return stack;
  }
  void* mapped = ::mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED || ::mprotect(mapped, kGuardBytes, PROT_NONE) != 0) std::abort();
  return static_cast<std::byte*>(mapped) + kGuardBytes;
}

void start_switch(void** fake_stack, const void* bottom, std::size_t bytes) {
  if (__sanitizer_start_switch_fiber != nullptr) __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
}

void finish_switch(void* fake_stack, const void** bottom, std::size_t* bytes) {
  if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(fake_stack, bottom, bytes);
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(take_stack()) {
  ::getcontext(&own_);
  own_.uc_stack.ss_sp = stack_;
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(this);
  ::makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(address >> 32),
                static_cast<unsigned>(address));
}

Fiber::~Fiber() {
  spare_stacks().push_back(stack_);
}

bool Fiber::resume() {
  start_switch(&caller_fake_stack_, stack_, kStackBytes);
  ::swapcontext(&caller_, &own_);
  finish_switch(caller_fake_stack_, nullptr, nullptr);
  return ended_;
}

void Fiber::pause() {
  start_switch(&own_fake_stack_, caller_stack_, caller_stack_bytes_);
  ::swapcontext(&own_, &caller_);
  finish_switch(own_fake_stack_, &caller_stack_, &caller_stack_bytes_);
}

// makecontext passes integers.
void Fiber::enter(unsigned high, unsigned low) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  reinterpret_cast<Fiber*>((static_cast<std::uintptr_t>(high) << 32) | low)->begin();
}

void Fiber::begin() {
  finish_switch(nullptr, &caller_stack_, &caller_stack_bytes_);
  body_();
  body_ = nullptr;
  ended_ = true;
  start_switch(nullptr, caller_stack_, caller_stack_bytes_);
  ::swapcontext(&own_, &caller_);
  std::abort();  // nobody resumes what has ended
}

}  // namespace deltawire::simulation
