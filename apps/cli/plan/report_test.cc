#include "cli/plan/report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/plan/figures.h"

namespace deltawire::cli {
namespace {

CodecFigures codec(const std::string& spec, Tier tier, double bits) {
  return {spec, Pattern::kDirect, tier, bits, {1e-6, 3e-10}, {1e-6, 2e-10}};
}

PlanReport report_of(const std::vector<double>& rates, Tier tier = Tier::kLossy) {
  PlanReport report;
  report.input = "trace/";
  report.figures = "measured";
  report.options.tier = tier;
  report.workload = ddp_workload({{"conv", 25000}, {"fc", 400000}}, 0.03);
  for (const double rate : rates) {
    Site site{4, {rate, rate, 1e-4}, {}};
    auto plan =
        make_plan(report.workload, site,
                  {codec("bf16", Tier::kNearLossless, 16), codec("a<b>&c", Tier::kLossy, 1)}, report.options);
    EXPECT_TRUE(plan);
    report.plans.push_back({site, *plan});
  }
  return report;
}

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(PlanText, MarksWhatIsChosenAndSaysWhy) {
  PlanReport report = report_of({12.5e6});
  report.refused.emplace_back("3lc: NaN");
  const std::string text = plan_text(report);
  EXPECT_NE(text.find("trace/: 425,000 values in 2 buckets, forward and backward 30.00 ms\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("left out: 3lc: NaN\n"), std::string::npos);
  EXPECT_NE(text.find("4 ranks, 100 Mbit/s, 0.1 ms latency\n"), std::string::npos);
  EXPECT_NE(text.find("\n*  a<b>&c"), std::string::npos) << text;
  EXPECT_NE(text.find("\n   bf16"), std::string::npos);
  EXPECT_EQ(count_of(text, "\n*"), 1);
  EXPECT_LT(text.find("a<b>&c  "), text.find("bf16  ")) << "the fastest first";
  EXPECT_NE(text.find(report.plans[0].plan.reason), std::string::npos);
}

TEST(PlanText, PlainIsMarkedWhereNothingPays) {
  const std::string text = plan_text(report_of({12.5e6}, Tier::kLossless));
  EXPECT_NE(text.find("\n*  plain"), std::string::npos) << text;
  EXPECT_NE(text.find("bf16    direct       near-lossless (not allowed)"), std::string::npos) << text;
  EXPECT_NE(text.find("do not compress: "), std::string::npos);
}

TEST(PlanText, SeveralPlacesAreALineEach) {
  const std::string text = plan_text(report_of({1.25e6, 12.5e6, 1e11}));
  EXPECT_NE(text.find("10 Mbit/s, 0.1 ms"), std::string::npos) << text;
  EXPECT_EQ(count_of(text, "a<b>&c"), 2) << text;
  EXPECT_NE(text.find("800 Gbit/s, 0.1 ms     30.90  do not compress"), std::string::npos) << text;
}

TEST(PlanText, AssumptionsSayWhatHidesNothing) {
  PlanReport report = report_of({1e6});
  EXPECT_NE(assumptions_text(report).find("2 cores, 1 thread coding"), std::string::npos)
      << assumptions_text(report);
  EXPECT_NE(assumptions_text(report).find("backward two thirds"), std::string::npos);
  report.workload.compute_seconds = 0;
  EXPECT_NE(assumptions_text(report).find("give --compute-ms"), std::string::npos);
}

TEST(PlanJson, IsWhatFiguresReads) {
  const PlanReport report = report_of({12.5e6});
  const std::string text = plan_json(report);
  const auto file = parse_figures(text, "plan.json");
  ASSERT_EQ(file.tensors.size(), 2);
  EXPECT_EQ(file.tensors[0].name, "conv");
  EXPECT_EQ(file.tensors[1].elements, 400000);
  ASSERT_EQ(file.codecs.size(), 2);
  const CodecFigures& before = report.plans[0].plan.rows[1].figures;
  EXPECT_EQ(file.codecs[1].spec, before.spec);
  EXPECT_EQ(file.codecs[1].tier, before.tier);
  EXPECT_DOUBLE_EQ(file.codecs[1].encode.value_seconds, before.encode.value_seconds);
  EXPECT_DOUBLE_EQ(file.codecs[1].decode.message_seconds, before.decode.message_seconds);

  const auto json = nlohmann::json::parse(text);
  const auto& at = json["plans"][0];
  EXPECT_EQ(at["ranks"], 4);
  EXPECT_EQ(at["up_bits_per_second"], 1e8);
  EXPECT_EQ(at["chosen"], "a<b>&c");
  EXPECT_DOUBLE_EQ(at["rows"][1]["ms_per_step"].get<double>(),
                   1e3 * report.plans[0].plan.rows[1].prediction.step_seconds);
  EXPECT_EQ(json["buckets"][0]["tensors"], nlohmann::json::array({"fc"}));
  EXPECT_DOUBLE_EQ(json["buckets"][0]["ready_ms"].get<double>(), 20);
}

}  // namespace
}  // namespace deltawire::cli
