// What the environment says to this library.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "deltawire/result.h"

namespace deltawire {

// The variable's text. Empty: it is not set, or to nothing, which is alike.
inline std::string_view setting_of(const char* variable) noexcept {
  const char* const text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

// Of something that is on unless its variable is "off". kInvalidArgument: another value than "on" and "off".
inline Result<bool> is_switched_on(const char* variable) {
  const std::string_view setting = setting_of(variable);
  if (setting.empty() || setting == "on") return true;
  if (setting == "off") return false;
  return invalid(std::string(variable) + "=\"" + printable_line(setting) +
                 "\" is neither \"on\" nor \"off\"");
}

}  // namespace deltawire
