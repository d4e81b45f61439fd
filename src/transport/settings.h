// The text that all ranks must have alike, e.g. the reducer's spec; compared when they connect.
#pragma once

#include <cstddef>
#include <string>

#include "deltawire/result.h"

namespace deltawire {

inline constexpr std::size_t kSettingsMax = 1024;

// kInvalidArgument, in the name of the function `caller`, for more than kSettingsMax bytes.
Status check_settings(const std::string& caller, const std::string& settings);

// The kMismatch of two ranks' settings, with both texts; `other` is the suspect.
Error settings_mismatch(int other, const std::string& others, int self, const std::string& own);

}  // namespace deltawire
