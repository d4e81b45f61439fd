// Steps whose times were computed by hand.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "planner/planner_testing.h"

namespace deltawire::planner {
namespace {

constexpr std::uint64_t kPiece = 81920;  // of `direct`

double step(const Workload& workload, const Site& site, const CodecFigures& figures) {
  const auto made = predict(workload, site, figures);
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return made ? made->step_seconds : 0;
}

double plain(const Workload& workload, const Site& site) {
  const auto made = predict_plain(workload, site);
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return made ? made->step_seconds : 0;
}

TEST(Plain, IsARing) {
  // 2 (N-1)/N of the tensor by the rate, and the latency of each hop.
  const Workload workload = step_of({bucket_of(32000)});
  EXPECT_DOUBLE_EQ(plain(workload, bare_site(2)), 0.128);
  Site far = bare_site(4);
  far.link.latency_seconds = 0.01;
  EXPECT_DOUBLE_EQ(plain(workload, far), 6 * (0.032 + 0.01));
}

TEST(Plain, OfVeryManyValuesIsReplayedAsFast) {
  // Piece by piece it would take minutes.
  const std::uint64_t values = std::uint64_t{1} << 40;
  const double once = 4 * static_cast<double>(values) / 1e6;
  for (const Pattern pattern : {Pattern::kDirect, Pattern::kRing, Pattern::kGather}) {
    const double whole = step(step_of({bucket_of(values)}), bare_site(2), free_codec(pattern));
    EXPECT_NEAR(whole / once, 1, 1e-3) << static_cast<int>(pattern);
  }
  EXPECT_NEAR(plain(step_of({bucket_of(values)}), bare_site(2)) / once, 1, 1e-3);
}

TEST(Plain, SendsValuesAsTheyAre) {
  PlanBucket half = bucket_of(32000);
  half.value_bytes = 2;
  EXPECT_DOUBLE_EQ(plain(step_of({half}), bare_site(2)), 0.064);
  EXPECT_DOUBLE_EQ(plain(step_of({half, bucket_of(32000)}), bare_site(2)), 0.064 + 0.128);
  const auto whole = predict(step_of({bucket_of(32000)}), bare_site(2), free_codec(Pattern::kRing));
  const auto coded = predict(step_of({half}), bare_site(2), free_codec(Pattern::kRing));
  EXPECT_EQ(coded->step_seconds, whole->step_seconds);  // a codec's bits are its own
}

TEST(Plain, BucketsWaitForBackwardAndForEachOther) {
  const double each = 0.128;
  EXPECT_DOUBLE_EQ(plain(step_of({bucket_of(32000, 0.1), bucket_of(32000, 0.15)}), bare_site(2)),
                   0.1 + 2 * each);
  EXPECT_DOUBLE_EQ(plain(step_of({bucket_of(32000, 0.1), bucket_of(32000, 0.5)}), bare_site(2)), 0.5 + each);
}

TEST(Plain, CutsBucketsEvenly) {
  // By owners the small tensor would be one rank's.
  const Workload workload = step_of({{{{"weight", 32000}, {"bias", 8000}}, 0}});
  EXPECT_DOUBLE_EQ(plain(workload, bare_site(4)), 2 * 0.75 * 0.16);
}

TEST(Copies, ComeBeforeCodingAndAfterTheLastMean) {
  // A microsecond a byte from the device, one at a time, and half of that back; of 16-bit values half as
  // much.
  Site site = bare_site(2);
  site.machine.load_byte_seconds = 1e-6;
  site.machine.store_byte_seconds = 5e-7;
  PlanBucket half = bucket_of(32000, 0.1);
  half.value_bytes = 2;
  const Workload workload = step_of({half, bucket_of(32000, 0.11)});
  const double loaded = 0.1 + 0.064 + 0.128;
  EXPECT_DOUBLE_EQ(step(workload, site, free_codec(Pattern::kRing)), loaded + 0.128 + 0.064);
  EXPECT_DOUBLE_EQ(step(step_of({bucket_of(32000, 0.1), half}), site, free_codec(Pattern::kRing)),
                   0.1 + 0.128 + 2 * 0.128 + 0.032);
  const double plainly = plain(workload, site);
  EXPECT_DOUBLE_EQ(plainly, plain(workload, bare_site(2)));
  site.machine.store_byte_seconds = -1;
  const auto refused = predict(workload, site, free_codec(Pattern::kRing));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("a byte's time to a device"), std::string::npos);
}

TEST(Direct, BytesAlone) {
  const auto made = predict(step_of({bucket_of(4 * kPiece)}), bare_site(4), free_codec(Pattern::kDirect));
  ASSERT_TRUE(made);
  const double bound = 2 * 0.75 * 4 * 4 * kPiece / 1e6;
  EXPECT_DOUBLE_EQ(made->step_seconds, bound);
  EXPECT_DOUBLE_EQ(made->wire_seconds, bound);
  EXPECT_DOUBLE_EQ(made->bytes_sent, 1e6 * bound);
  EXPECT_DOUBLE_EQ(made->exposed_seconds, bound);
  EXPECT_EQ(made->coding_seconds, 0);
}

TEST(Direct, EveryStageOfAPiece) {
  // 16,000 values of each rank, 16 ms on the line. Push: encoded at 16, here at 32; the rank's own encoded at
  // 32. Added at 64 and 96, mean encoded at 112, there at 128; decoded by its owner at 144, the other's at
  // 176.
  const auto made = predict(step_of({bucket_of(32000)}), bare_site(2), slow_codec(Pattern::kDirect));
  ASSERT_TRUE(made);
  EXPECT_DOUBLE_EQ(made->step_seconds, 0.176);
  EXPECT_DOUBLE_EQ(made->coding_seconds, 3 * 0.016 + 4 * 0.032);
  EXPECT_DOUBLE_EQ(made->wire_seconds, 0.032);
}

TEST(Direct, PiecesOverlap) {
  // Two pieces of an owner: the second is pushed while the first one's mean is on its way, so that the
  // latency is paid once.
  Site site = bare_site(2);
  site.link.latency_seconds = 0.1;
  const double piece = 4 * kPiece / 1e6;
  EXPECT_DOUBLE_EQ(step(step_of({bucket_of(4 * kPiece)}), site, free_codec(Pattern::kDirect)),
                   4 * piece + 0.1 + 0.1);  // and the vote's
}

TEST(Direct, SmallerPiecesLeaveRoomForMoreRounds) {
  // As long on the line; but of full pieces of fp32, three at a time may be on their way.
  const Workload workload = step_of({bucket_of(18 * kPiece)});
  Site site = bare_site(2);
  site.link = {1e6, 1e6, 10};
  const double full = step(workload, site, free_codec(Pattern::kDirect, 32));
  site.link = {0.25e6, 0.25e6, 10};
  EXPECT_LT(step(workload, site, free_codec(Pattern::kDirect, 8)), full - 5);
}

TEST(Direct, BackwardHidesWhatIsReadyEarly) {
  const double each = 0.128;
  const CodecFigures codec = free_codec(Pattern::kDirect);
  EXPECT_DOUBLE_EQ(step(step_of({bucket_of(32000, 0.1), bucket_of(32000, 1)}, 1), bare_site(2), codec),
                   1 + each);
  EXPECT_DOUBLE_EQ(step(step_of({bucket_of(32000, 0.1), bucket_of(32000, 0.2)}, 1), bare_site(2), codec), 1);
}

TEST(Direct, TheBusiestOwnerCounts) {
  // A tensor that is not cut: its owner sends its mean three times, one after another; the other's push comes
  // in from three ranks.
  const Workload workload = step_of({{{{"bias", 16000}}, 0}});
  EXPECT_DOUBLE_EQ(step(workload, bare_site(4), free_codec(Pattern::kDirect)), 6 * 0.064);
}

TEST(Direct, MessagesCostProcessorTime) {
  Site site = bare_site(2);
  site.link = {1e12, 1e12, 0};
  site.machine.message_seconds = 1;
  // A push out and in, a mean out and in, and the vote out and in.
  EXPECT_NEAR(step(step_of({bucket_of(32000)}), site, free_codec(Pattern::kDirect)), 6, 1e-6);
  site.machine.message_seconds = 0;
  site.machine.byte_seconds = 1e-3;
  EXPECT_NEAR(step(step_of({bucket_of(32000)}), site, free_codec(Pattern::kDirect)), 4 * 64, 1e-6);
}

TEST(Ring, EveryHopCodes) {
  // Encoded at 16, here at 32, added at 64, the mean encoded at 80, there at 96; the rank's own decoded at
  // 112, the other's at 144.
  EXPECT_DOUBLE_EQ(step(step_of({bucket_of(32000)}), bare_site(2), slow_codec(Pattern::kRing)), 0.144);
  // Four ranks, no coding: the ring's bytes.
  EXPECT_DOUBLE_EQ(step(step_of({bucket_of(32000)}), bare_site(4), free_codec(Pattern::kRing)),
                   2 * 0.75 * 0.128);
}

TEST(Ring, TheMeanIsHandedOnUncoded) {
  // Three ranks, 9600 values each: a scatter hop between (decode, encode), the mean, and a mean that is
  // handed on before it is decoded.
  Site site = bare_site(3);
  site.link = {1e12, 1e12, 0};
  const double coding = 0.0096;
  const CodecFigures codec = slow_codec(Pattern::kRing);
  EXPECT_NEAR(step(step_of({bucket_of(28800)}), site, codec), (3 * 1 + 5 * 2) * coding, 1e-6);
}

TEST(Gather, EverybodyGetsEverything) {
  // Three copies leave; each rank decodes four.
  const auto made = predict(step_of({bucket_of(32000)}), bare_site(4), free_codec(Pattern::kGather));
  ASSERT_TRUE(made);
  EXPECT_DOUBLE_EQ(made->step_seconds, 3 * 0.128);
  // Encoded at 32, here at 64, decoded at 128, the rank's own at 192.
  EXPECT_DOUBLE_EQ(step(step_of({bucket_of(32000)}), bare_site(2), slow_codec(Pattern::kGather)), 0.192);
}

TEST(Machine, FewCoresShareWithTheComputation) {
  const Workload workload = step_of({bucket_of(32000)}, 0.5);
  Site site = bare_site(2);
  EXPECT_DOUBLE_EQ(step(workload, site, slow_codec(Pattern::kDirect)), 0.5);
  site.machine.cores = 1.5;  // computing takes one of them
  EXPECT_DOUBLE_EQ(step(workload, site, slow_codec(Pattern::kDirect)), 0.5);
  site.machine.cores = 1;
  EXPECT_DOUBLE_EQ(step(workload, site, slow_codec(Pattern::kDirect)), 0.5 + 0.176);
  // Half a core: half of what the clock shows was this rank's computation, and coding takes twice as long.
  site.machine.cores = 0.5;
  EXPECT_DOUBLE_EQ(step(workload, site, slow_codec(Pattern::kDirect)), 0.5 + 2 * 0.176);
}

TEST(Machine, ThreadsShareOutPartsAndDecodeOneTogether) {
  Site site = bare_site(2);
  site.link = {1e12, 1e12, 0};
  CodecFigures codec = slow_codec(Pattern::kGather);
  const Workload one_tensor = step_of({bucket_of(320000)});
  const double alone = 0.32 + 2 * 0.64;
  site.machine.coding_threads = 4;
  // Owner boundaries make two parts of the tensor: one for each of two threads.
  EXPECT_NEAR(step(one_tensor, site, codec), alone / 2, 1e-6);
  codec.shares_parts = true;
  EXPECT_NEAR(step(one_tensor, site, codec), 0.32 / 2 + 2 * 0.64 / 4, 1e-6);
  site.machine.cores = 2;  // which the four threads share
  EXPECT_NEAR(step(one_tensor, site, codec), 2 * (0.32 / 2 + 2 * 0.64 / 4), 1e-6);
  // Messages of `direct` are coded in less time than it takes to wake a thread.
  codec = slow_codec(Pattern::kDirect);
  site.machine.cores = 64;
  const double shared = step(one_tensor, site, codec);
  site.machine.coding_threads = 1;
  EXPECT_DOUBLE_EQ(step(one_tensor, site, codec), shared);
}

TEST(Refusals, NameWhatIsOutOfItsRange) {
  const Workload workload = step_of({bucket_of(32000)});
  const CodecFigures codec = free_codec(Pattern::kDirect);
  const auto refused = [&](const Workload& of, const Site& site, const CodecFigures& figures) {
    const auto made = predict(of, site, figures);
    EXPECT_FALSE(made);
    if (made) return std::string();
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
    return made.error().message;
  };
  EXPECT_EQ(refused(workload, bare_site(1), codec), "ranks is 1; it must be 2 to 65,536");
  EXPECT_NE(refused(workload, bare_site(65537), codec).find("ranks is 65537"), std::string::npos);
  const double bad[] = {0, -1, std::nan(""), std::numeric_limits<double>::infinity()};
  for (const double number : bad) {
    Site site = bare_site(2);
    site.link.up_bytes_per_second = number;
    EXPECT_NE(refused(workload, site, codec).find("rate up"), std::string::npos);
    site = bare_site(2);
    site.link.down_bytes_per_second = number;
    EXPECT_NE(refused(workload, site, codec).find("rate down"), std::string::npos);
    site = bare_site(2);
    site.machine.cores = number;
    EXPECT_NE(refused(workload, site, codec).find("cores"), std::string::npos);
    CodecFigures figures = codec;
    figures.bits_per_value = number;
    EXPECT_NE(refused(workload, bare_site(2), figures).find("\"free\": bits a value"), std::string::npos);
    if (number == 0) continue;
    site = bare_site(2);
    site.link.latency_seconds = number;
    EXPECT_NE(refused(workload, site, codec).find("latency"), std::string::npos);
    figures = codec;
    figures.decode.value_seconds = number;
    EXPECT_NE(refused(workload, bare_site(2), figures).find("decoding's time a value"), std::string::npos);
    EXPECT_NE(refused(step_of({bucket_of(320, number)}), bare_site(2), codec).find("bucket 0"),
              std::string::npos);
    EXPECT_NE(refused(step_of({bucket_of(320)}, number), bare_site(2), codec).find("computing"),
              std::string::npos);
  }
  EXPECT_NE(refused(step_of({bucket_of(320, 2), bucket_of(320, 1)}), bare_site(2), codec).find("bucket 1"),
            std::string::npos);
  for (const int bytes : {0, 9}) {
    PlanBucket odd = bucket_of(320);
    odd.value_bytes = bytes;
    EXPECT_NE(refused(step_of({odd}), bare_site(2), codec).find("bytes a value"), std::string::npos);
  }
  EXPECT_EQ(refused(step_of({}), bare_site(2), codec), "the workload has no values");
  Site site = bare_site(2);
  site.machine.coding_threads = 0;
  EXPECT_NE(refused(workload, site, codec).find("coding threads"), std::string::npos);
  EXPECT_FALSE(predict_plain(workload, site));
}

}  // namespace
}  // namespace deltawire::planner
