#include "cli/number_text.h"

#include <ranges>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

namespace deltawire::cli::number_text_test {
namespace {

TEST(CountText, HasUnitsAndPowersOfTen) {
  const std::pair<std::string_view, std::uint64_t> counts[] = {{"0", 0},
                                                               {"007", 7},
                                                               {"1000000", 1000000},
                                                               {"1k", 1000},
                                                               {"23.6m", 23600000},
                                                               {"0.0012M", 1200},
                                                               {"7b", 7000000000},
                                                               {"1.5B", 1500000000},
                                                               {"2g", 2000000000},
                                                               {"1t", 1000000000000},
                                                               {"2e6", 2000000},
                                                               {"1.5E9", 1500000000},
                                                               {"3e0", 3},
                                                               {"1.0k", 1000},
                                                               {"18446744073709551615", ~std::uint64_t{0}}};
  for (const auto& [text, count] : counts) EXPECT_EQ(count_of(text), count) << text;
}

TEST(CountText, IsWholeAndNothingElse) {
  constexpr std::string_view kRefused =
      "|k|.|.5m|1.m|1.0|1.5|1.2345k|1.5x|10x|1.5.5m|-1|+1| 1|1 |7gb|7kk|2e|2e-6|2e6k|1.25e1|e6|"
      "0x10|1_000|18446744073709551616|1e20|99e999999999999999999999|nan|many";
  for (const auto part : std::views::split(kRefused, '|')) {
    const std::string_view text(part.begin(), part.end());
    EXPECT_FALSE(count_of(text)) << text;
  }
}

}  // namespace
}  // namespace deltawire::cli::number_text_test
