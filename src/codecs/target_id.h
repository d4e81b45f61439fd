// Which instruction set kernels are compiled for. Every file of kernels has them in a namespace of that name.
#pragma once

#include <cstdint>

namespace deltawire {

// A place in kernel_targets().
enum class TargetId : std::uint8_t { kReference };

}  // namespace deltawire

// The build sets it for files that are compiled for another instruction set.
#ifndef DELTAWIRE_TARGET
#define DELTAWIRE_TARGET reference
#endif
