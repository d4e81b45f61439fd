// What must be equal on all ranks: a text, e.g. the reducer's spec, and the epoch; compared when they
// connect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "deltawire/rank_names.h"
#include "deltawire/result.h"

namespace deltawire {

inline constexpr std::size_t kSettingsMax = 1024;

// kInvalidArgument, naming the function `caller`, for more than kSettingsMax bytes.
Status check_settings(const std::string& caller, const std::string& settings);

// Fits settings of any length into kSettingsMax bytes: if they are longer, the front and a digest of all.
std::string fitted_settings(std::string settings);

// The kMismatch of rank `odd`, the suspect, whose settings differ from those of rank `reference` and of
// `others` more ranks; it quotes the words that differ.
Error settings_mismatch(int odd, const std::string& odd_text, int reference, const std::string& text,
                        std::size_t others = 0, const RankNames& names = RankNames::plain());

// The kMismatch of two ranks' membership epochs; `other` is the suspect.
Error epoch_mismatch(int other, std::uint32_t others, int self, std::uint32_t own,
                     const RankNames& names = RankNames::plain());

}  // namespace deltawire
