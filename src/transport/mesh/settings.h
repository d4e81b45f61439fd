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

// Settings of any length in kSettingsMax bytes: where they are more, the front and a digest of all.
std::string fitted_settings(std::string settings);

// The kMismatch of a rank whose settings are not those of rank `reference` and of so many others: with the
// words in which the two texts differ. `odd` is the suspect.
Error settings_mismatch(int odd, const std::string& odd_text, int reference, const std::string& text,
                        std::size_t others = 0);

// The kMismatch of two ranks' membership epochs; `other` is the suspect.
Error epoch_mismatch(int other, std::uint32_t others, int self, std::uint32_t own);

}  // namespace deltawire
