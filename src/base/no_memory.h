// Turns running out of memory into an Error.
#pragma once

#include <new>
#include <string_view>

#include "deltawire/result.h"

namespace deltawire {

// kNoMemory. If there is not even memory for the text, the error has none.
inline Error no_memory(std::string_view while_doing) noexcept {
  Error error;
  error.code = ErrorCode::kNoMemory;
  try {
    error.message = "out of memory while ";
    error.message += while_doing;
    error.message += "; docs/design/memory.md says what a step needs";
    // NOLINTNEXTLINE(bugprone-empty-catch): the error code is enough.
  } catch (const std::bad_alloc&) {
  }
  return error;
}

// What `call` returns, a Result; std::bad_alloc becomes kNoMemory.
template <class Call>
auto or_no_memory(std::string_view doing, Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return tl::unexpected<Error>(no_memory(doing));
  }
}

}  // namespace deltawire
