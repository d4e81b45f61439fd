#include "cli/plan/sites.h"

#include <gtest/gtest.h>

#include "cli/outcome_testing.h"

namespace deltawire::cli {
namespace {

TEST(Ranks, OneSomeOrARange) {
  EXPECT_EQ(parse_ranks("4"), (std::vector<int>{4}));
  EXPECT_EQ(parse_ranks("4,8,64"), (std::vector<int>{4, 8, 64}));
  EXPECT_EQ(parse_ranks("4..64"), (std::vector<int>{4, 8, 16, 32, 64}));
  EXPECT_EQ(parse_ranks("3..10,65536"), (std::vector<int>{3, 6, 10, 65536}));
  EXPECT_EQ(parse_ranks("8..8"), (std::vector<int>{8}));
}

TEST(Ranks, RefusalsNameTheText) {
  for (const char* text :
       {"", "1", "0", "-4", "4.5", "four", "65537", "8..4", "4..", "..4", "4,", ",4", "4 8"}) {
    const Failure refusal = testing::failure_of([&] { return parse_ranks(text); });
    EXPECT_EQ(refusal.exit_status, kExitUsage);
    EXPECT_TRUE(refusal.message.starts_with("--ranks \"" + std::string(text) + "\": ")) << text;
  }
}

TEST(Links, RateAndLatency) {
  const LinkRates plain = parse_links("100mbit").front();
  EXPECT_DOUBLE_EQ(plain.up_bytes_per_second, 12.5e6);
  EXPECT_DOUBLE_EQ(plain.down_bytes_per_second, 12.5e6);
  EXPECT_DOUBLE_EQ(plain.latency_seconds, 1e-4);
  EXPECT_DOUBLE_EQ(parse_links("2.5gbit").front().up_bytes_per_second, 312.5e6);
  EXPECT_DOUBLE_EQ(parse_links("8kbit").front().up_bytes_per_second, 1e3);
  EXPECT_DOUBLE_EQ(parse_links("1gbit,20ms").front().latency_seconds, 0.02);
  EXPECT_DOUBLE_EQ(parse_links("1gbit,50us").front().latency_seconds, 5e-5);
  EXPECT_DOUBLE_EQ(parse_links("1gbit,0.5s").front().latency_seconds, 0.5);
  const LinkRates home = parse_links("100mbit/20mbit,5ms").front();
  EXPECT_DOUBLE_EQ(home.down_bytes_per_second, 12.5e6);
  EXPECT_DOUBLE_EQ(home.up_bytes_per_second, 2.5e6);
}

TEST(Links, ARangeHasTwoADecadeAndItsEnds) {
  const std::vector<LinkRates> all = parse_links("10mbit..1gbit,1ms");
  ASSERT_EQ(all.size(), 5);
  EXPECT_DOUBLE_EQ(all[0].up_bytes_per_second, 1.25e6);
  EXPECT_NEAR(all[1].up_bytes_per_second, 1.25e6 * 3.1622777, 1);
  EXPECT_DOUBLE_EQ(all[2].up_bytes_per_second, 12.5e6);
  EXPECT_DOUBLE_EQ(all[4].down_bytes_per_second, 125e6);
  EXPECT_DOUBLE_EQ(all[4].latency_seconds, 1e-3);
  ASSERT_EQ(parse_links("10mbit..20mbit").size(), 2);
  EXPECT_DOUBLE_EQ(parse_links("10mbit..20mbit")[1].up_bytes_per_second, 2.5e6);
}

TEST(Links, RefusalsNameTheText) {
  for (const char* text : {"", "100", "mbit", "0mbit", "-1mbit", "1e9gbit", "infgbit", "nanmbit", "7kbit",
                           "100mbit,", "100mbit,5", "100mbit,-1ms", "100mbit,61s", "1gbit..1mbit", "1mbit/",
                           "1mbit/2", "100 mbit", "100MBit"}) {
    const Failure refusal = testing::failure_of([&] { return parse_links(text); });
    EXPECT_EQ(refusal.exit_status, kExitUsage);
    EXPECT_TRUE(refusal.message.starts_with("--link \"" + std::string(text) + "\": ")) << text;
  }
}

TEST(Links, AsTablesNameThem) {
  EXPECT_EQ(link_name(parse_links("100mbit").front()), "100 Mbit/s, 0.1 ms");
  EXPECT_EQ(link_name(parse_links("1gbit/50mbit,20ms").front()), "1/0.05 Gbit/s, 20 ms");
  EXPECT_EQ(rate_name(125e6), "1 Gbit/s");
  EXPECT_EQ(rate_name(124.99e6), "1 Gbit/s");
  EXPECT_EQ(rate_name(1.2345e6), "9.88 Mbit/s");
  EXPECT_EQ(rate_name(1e3), "8 kbit/s");
}

}  // namespace
}  // namespace deltawire::cli
