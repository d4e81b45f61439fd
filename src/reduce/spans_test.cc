// What a step's time went to: the spans of a timed one, and the sums that they are made of.
#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reduce/buckets_in_flight.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::spans_test {
namespace {

double seconds_in(const std::vector<PhaseSpan>& spans, PhaseSpan::Phase phase) {
  double sum = 0;
  for (const PhaseSpan& span : spans) {
    EXPECT_LE(span.begin, span.end);
    if (span.phase == phase) sum += std::chrono::duration<double>(span.end - span.begin).count();
  }
  return sum;
}

TEST(Spans, AreWhatTheSumsOfATimedStepAreMadeOf) {
  for (const std::string spec : {"direct(3lc)", "ring(fp32)", "gather(sbc)", "powersgd:rank=2"}) {
    run_ranks(3, {}, [&](int rank, Transport& transport) {
      const auto reducer = reducer_of(spec);
      const auto before = Clock::now();
      std::vector<float> values(20000, 1.0F + static_cast<float>(rank));
      const std::uint64_t dims[] = {100, 200};
      Named one{"w", {values.data(), values.size(), DType::kF32}};
      one.tensor.dims = dims;
      Step step{.number = 0, .timed = true};
      const auto timed = reducer->all_reduce(std::span(&one, 1), step, transport, in_seconds(60));
      ASSERT_TRUE(timed) << timed.error().message;
      using Phase = PhaseSpan::Phase;
      EXPECT_NEAR(seconds_in(timed->spans, Phase::kEncode), timed->encode_seconds, 1e-9) << spec;
      EXPECT_NEAR(seconds_in(timed->spans, Phase::kDecode), timed->decode_seconds, 1e-9) << spec;
      EXPECT_NEAR(seconds_in(timed->spans, Phase::kExchange), timed->exchange_seconds, 1e-9) << spec;
      EXPECT_GT(timed->encode_seconds, 0.0) << spec;
      for (const PhaseSpan& span : timed->spans) {
        EXPECT_GE(span.begin, before) << spec;
        EXPECT_LE(span.end, Clock::now()) << spec;
      }
      const auto plain = reducer->all_reduce(std::span(&one, 1), {1, 0, true}, transport, in_seconds(60));
      ASSERT_TRUE(plain) << plain.error().message;
      EXPECT_TRUE(plain->spans.empty()) << spec;
    });
  }
}

TEST(Stopwatch, AddsToWhatIsThere) {
  Report report;
  report.decode_seconds = 1000;
  report.spans.reserve(1);
  for (int i = 0; i < 2; ++i) {
    const Stopwatch timer(report, Stopwatch::Phase::kDecode);
  }
  EXPECT_GE(report.decode_seconds, 1000);
  EXPECT_EQ(report.encode_seconds + report.exchange_seconds, 0);
  ASSERT_EQ(report.spans.size(), 1u) << "there is no room for a second";
  EXPECT_EQ(report.spans[0].phase, PhaseSpan::Phase::kDecode);
}

}  // namespace
}  // namespace deltawire::spans_test
