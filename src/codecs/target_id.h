// Which instruction set kernels are compiled for. Every file of kernels has them in a namespace of that name.
#pragma once

#include <cstdint>

namespace deltawire {

// A place in kernel_targets(): each CPU that runs one runs those before it, too.
enum class TargetId : std::uint8_t {
  kReference,
#if defined(__x86_64__)
  kAvx2,
  kAvx512,
  kAvx512Vbmi,
#elif defined(__aarch64__)
  kNeon,
#endif
  kCount
};

}  // namespace deltawire

// The build sets it for files that are compiled for another instruction set.
#ifndef DELTAWIRE_TARGET
#define DELTAWIRE_TARGET reference
#endif
