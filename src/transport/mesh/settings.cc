#include "transport/mesh/settings.h"

#include <algorithm>
#include <cassert>
#include <string_view>

#include "base/errors.h"
#include "transport/tcp/proof.h"

namespace deltawire {
namespace {

std::string quoted(std::string_view text) {
  return "\"" + printable_line(text) + "\"";
}

// Removes the words that two texts have in common at the beginning and at the end.
void keep_differing_words(std::string_view& one, std::string_view& other) {
  const std::size_t shorter = std::min(one.size(), other.size());
  std::size_t front = 0;
  while (front < shorter && one[front] == other[front]) ++front;
  while (front > 0 && one[front - 1] != ' ') --front;
  one.remove_prefix(front);
  other.remove_prefix(front);
  std::size_t back = 0;
  while (back < shorter - front && one[one.size() - 1 - back] == other[other.size() - 1 - back]) ++back;
  while (back > 0 && one[one.size() - back] != ' ') --back;
  one.remove_suffix(back);
  other.remove_suffix(back);
}

}  // namespace

Status check_settings(const std::string& caller, const std::string& settings) {
  if (settings.size() <= kSettingsMax) return {};
  return invalid(caller + ": settings of " + std::to_string(settings.size()) + " bytes; at most " +
                 std::to_string(kSettingsMax) + " can be compared");
}

std::string fitted_settings(std::string settings) {
  if (settings.size() <= kSettingsMax) return settings;
  std::string digest = " ... SHA-256: ";
  for (const std::byte byte : digest_of(settings)) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    digest += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    digest += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  settings.resize(kSettingsMax - digest.size());
  assert(digest.size() < kSettingsMax);
  return settings + digest;
}

Error settings_mismatch(int odd, const std::string& odd_text, int reference, const std::string& text,
                        std::size_t others, const RankNames& names) {
  std::string_view odd_words = odd_text;
  std::string_view words = text;
  keep_differing_words(odd_words, words);
  const std::string more = others == 0   ? " has "
                           : others == 1 ? " and another have "
                                         : " and " + std::to_string(others) + " others have ";
  return {.code = ErrorCode::kMismatch,
          .message = names.of(odd) + " has the settings " + quoted(odd_words) + ", " + names.of(reference) +
                     more + quoted(words),
          .suspect = odd,
          .reporter = reference,  // each of the two finds the same
          .ranks = {odd},
          .advice = "start all ranks with the same settings"};
}

Error epoch_mismatch(int other, std::uint32_t others, int self, std::uint32_t own, const RankNames& names) {
  return {
      .code = ErrorCode::kMismatch,
      .message = names.of(other) + " belongs to membership epoch " + std::to_string(others) + ", " +
                 names.of(self) + " to epoch " + std::to_string(own),
      .suspect = other,
      .reporter = self,
      .ranks = {other},
      .advice = "end the ranks that are left of the older epoch, and start all ranks with the same epoch"};
}

}  // namespace deltawire
