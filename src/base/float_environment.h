// The floating-point mode that the arithmetic of codecs and optimizers is defined in: round to nearest even,
// subnormals kept.
//
// A training framework may run its threads with flush-to-zero on; a residual of 0x0020aac8 then turns into 0
// on one machine and not on another. Every encode, decode and optimizer step holds a FloatEnvironment while
// it computes.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace deltawire {

// Saves the calling thread's floating-point control word, sets the defined mode, and restores the word as
// it was (exception flags included) when it goes out of scope.
class FloatEnvironment {
 public:
  FloatEnvironment() noexcept : saved_(read_control()) { write_control(kDefinedMode); }
  ~FloatEnvironment() { write_control(saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

  // Hides `value` from the compiler up to this point, so that arithmetic on it can't be moved before the
  // change of mode. Only needed for local values; arithmetic on values loaded afterwards can't move either.
  static float pinned(float value) noexcept {
    asm volatile("" : "+m"(value)::"memory");
    return value;
  }

  // The thread's control word: MXCSR on x86, FPCR on aarch64, 0 on other machines.
  static std::uint64_t read_control() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    return _mm_getcsr();
#elif defined(__aarch64__)
    std::uint64_t word = 0;
    asm volatile("mrs %0, fpcr" : "=r"(word)::"memory");
    return word;
#else
    return 0;
#endif
  }

  // Sets it. The memory clobbers keep the compiler from moving loads and stores, and with them the
  // arithmetic between, across the change of mode.
  static void write_control(std::uint64_t word) noexcept {
#if defined(__x86_64__) || defined(__i386__)
    asm volatile("" ::: "memory");
    _mm_setcsr(static_cast<unsigned>(word));
    asm volatile("" ::: "memory");
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" ::"r"(word) : "memory");
#else
    static_cast<void>(word);
#endif
  }

  // Control bits that flush subnormal results and inputs to zero, as a caller may have set; used by tests.
#if defined(__x86_64__) || defined(__i386__)
  static constexpr std::uint64_t kFlushToZero = 0x8040;  // FTZ, DAZ
  static constexpr std::uint64_t kRoundUp = 0x4000;
#elif defined(__aarch64__)
  static constexpr std::uint64_t kFlushToZero = std::uint64_t{1} << 24;  // FZ
  static constexpr std::uint64_t kRoundUp = std::uint64_t{1} << 22;
#else
  static constexpr std::uint64_t kFlushToZero = 0;
  static constexpr std::uint64_t kRoundUp = 0;
#endif

 private:
#if defined(__x86_64__) || defined(__i386__)
  static constexpr std::uint64_t kDefinedMode = 0x1F80;  // all exceptions masked, nearest, no FTZ, no DAZ
#else
  static constexpr std::uint64_t kDefinedMode = 0;
#endif

  std::uint64_t saved_;
};

}  // namespace deltawire
