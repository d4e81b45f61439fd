// What the library's calls give; an error is thrown, and ends a row or a program.
#pragma once

#include <stdexcept>
#include <utility>

#include "deltawire/result.h"

namespace deltawire::bench {

template <class T>
T taken(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

inline void check(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message);
}

}  // namespace deltawire::bench
