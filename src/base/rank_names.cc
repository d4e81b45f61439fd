#include "deltawire/rank_names.h"

#include <algorithm>

namespace deltawire {
namespace {

constexpr int kLargest = 1 << 30;  // so that world_size + number is one, too

void map_ranks(Error& error, auto map) noexcept {
  error.suspect = map(error.suspect);
  error.reporter = map(error.reporter);
  error.waits_for = map(error.waits_for);
  for (int& rank : error.ranks) rank = map(rank);
}

}  // namespace

const RankNames& RankNames::plain() noexcept {
  static const RankNames plain;
  return plain;
}

bool RankNames::fit(int world_size) const {
  if (numbers.empty()) return true;
  std::vector<int> sorted = numbers;
  std::ranges::sort(sorted);
  return sorted.size() == static_cast<std::size_t>(world_size) && sorted.front() >= 0 &&
         sorted.back() <= kLargest && std::ranges::adjacent_find(sorted) == sorted.end();
}

std::string RankNames::of(int rank) const {
  return kind + " " + std::to_string(number_of(rank));
}

std::string RankNames::of(std::span<const int> ranks) const {
  std::string text = kind;
  if (ranks.size() != 1) text += "s";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? " " : ", ") + std::to_string(number_of(ranks[i]));
  }
  return text;
}

int RankNames::number_of(int rank) const noexcept {
  const auto size = static_cast<int>(numbers.size());
  if (size == 0 || rank < 0) return rank;
  return rank < size ? numbers[static_cast<std::size_t>(rank)] : rank - size;
}

int RankNames::rank_of(int number) const noexcept {
  if (numbers.empty() || number < 0) return number;
  const auto found = std::ranges::find(numbers, number);
  if (found == numbers.end()) return static_cast<int>(numbers.size()) + number;
  return static_cast<int>(found - numbers.begin());
}

Error RankNames::reported(int by, Error error) const {
  if (error.reporter != kNoRank) return error;
  error.message = of(by) + " reports: " + error.message;
  error.reporter = by;
  return error;
}

void RankNames::to_numbers(Error& error) const noexcept {
  map_ranks(error, [this](int rank) { return number_of(rank); });
}

void RankNames::to_ranks(Error& error) const noexcept {
  map_ranks(error, [this](int number) { return rank_of(number); });
}

}  // namespace deltawire
