// What all ranks must have alike: a text, e.g. the reducer's spec, and the epoch; compared when they connect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "deltawire/result.h"

namespace deltawire {

inline constexpr std::size_t kSettingsMax = 1024;

// kInvalidArgument, in the name of the function `caller`, for more than kSettingsMax bytes.
Status check_settings(const std::string& caller, const std::string& settings);

// The kMismatch of two ranks' settings, with both texts; `other` is the suspect.
Error settings_mismatch(int other, const std::string& others, int self, const std::string& own);

// The kMismatch of two ranks' membership epochs; `other` is the suspect.
Error epoch_mismatch(int other, std::uint32_t others, int self, std::uint32_t own);

}  // namespace deltawire
