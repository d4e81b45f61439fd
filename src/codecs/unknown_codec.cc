#include "codecs/unknown_codec.h"

#include <algorithm>
#include <string>
#include <vector>

namespace deltawire {
namespace {

std::string lower(std::string_view text) {
  std::string letters;
  for (const char letter : text) {
    if (letter == ' ') continue;
    letters += letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  return letters;
}

// Letters to insert, remove or replace, and neighbours to swap (Levenshtein's distance, and Damerau's swaps).
std::size_t edits_between(std::string_view from, std::string_view to) {
  std::vector<std::vector<std::size_t>> rows(from.size() + 1, std::vector<std::size_t>(to.size() + 1));
  for (std::size_t j = 0; j <= to.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    rows[i][0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = rows[i - 1][j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      rows[i][j] = std::min({replaced, rows[i - 1][j] + 1, rows[i][j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows.back().back();
}

// The codec whose name differs least, or the longest name within the given one; empty where none is near.
std::string_view nearest_to(const std::string& name, std::span<const CodecInfo* const> known) {
  std::string_view nearest;
  std::size_t fewest = name.size() <= 4 ? 2 : 3;
  for (const CodecInfo* info : known) {
    const std::size_t edits = edits_between(name, info->name);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = info->name;
  }
  if (!nearest.empty()) return nearest;
  for (const CodecInfo* info : known) {
    const bool within = name.find(info->name) != std::string::npos;
    if (within && info->name.size() > nearest.size()) nearest = info->name;
  }
  return nearest;
}

std::string advice_on(std::string_view name, std::span<const CodecInfo* const> known) {
  const std::string_view outer = name.substr(0, name.find('('));
  for (const CodecInfo* info : known) {
    if (info->default_pattern != outer) continue;
    const std::string codec = outer.size() < name.size() && name.ends_with(')')
                                  ? std::string(name.substr(outer.size() + 1, name.size() - outer.size() - 2))
                                  : std::string(info->name);
    return std::string(outer) + " is an exchange pattern, which only ranks use: give the codec alone, e.g. " +
           codec;
  }
  if (const auto nearest = nearest_to(lower(name), known); !nearest.empty()) {
    return "did you mean " + std::string(nearest) + "?";
  }
  std::string names;
  for (const CodecInfo* info : known) names += (names.empty() ? "" : ", ") + std::string(info->name);
  return "give one of " + names;
}

}  // namespace

tl::unexpected<Error> unknown_codec(std::string_view name, std::span<const CodecInfo* const> known) {
  return fail(ErrorCode::kUnknownCodec,
              "no codec is named \"" + std::string(name) + "\": " + advice_on(name, known));
}

}  // namespace deltawire
