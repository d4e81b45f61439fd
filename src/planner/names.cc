// The names of tiers and patterns.
#include <array>
#include <cassert>

#include "deltawire/planner.h"

namespace deltawire {
namespace {

constexpr std::array<std::string_view, 3> kTiers = {"lossless", "near-lossless", "lossy"};
constexpr std::array<std::string_view, 3> kPatterns = {"direct", "ring", "gather"};

template <class Enum>
std::optional<Enum> find(const std::array<std::string_view, 3>& names, std::string_view name) noexcept {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view tier_name(Tier tier) noexcept {
  assert(static_cast<std::size_t>(tier) < kTiers.size());
  return kTiers[static_cast<std::size_t>(tier)];
}

std::optional<Tier> find_tier(std::string_view name) noexcept {
  return find<Tier>(kTiers, name);
}

std::string_view pattern_name(Pattern pattern) noexcept {
  assert(static_cast<std::size_t>(pattern) < kPatterns.size());
  return kPatterns[static_cast<std::size_t>(pattern)];
}

std::optional<Pattern> find_pattern(std::string_view name) noexcept {
  return find<Pattern>(kPatterns, name);
}

Tier tier_of(bool lossless, double relative_l2) noexcept {
  if (lossless) return Tier::kLossless;
  // A comparison with NaN is false: an unmeasured codec counts as lossy.
  return relative_l2 <= kNearLosslessError ? Tier::kNearLossless : Tier::kLossy;
}

}  // namespace deltawire
