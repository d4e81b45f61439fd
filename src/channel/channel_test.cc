#include "deltawire/channel.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/property_testing.h"
#include "base/random.h"
#include "base/refusal_testing.h"
#include "channel/message_encoder.h"

namespace deltawire::channel_test {
namespace {

// A few named tensors of small whole numbers, so that sums are exact and conservation can be tested with ==.
struct Model {
  std::vector<std::string> names;
  std::vector<std::vector<float>> values;

  std::vector<Named> named() {
    std::vector<Named> all;
    for (std::size_t i = 0; i < names.size(); ++i) {
      all.push_back({names[i], {values[i].data(), values[i].size(), DType::kF32}, 0});
    }
    return all;
  }
};

Model zeros(const std::vector<std::size_t>& counts) {
  Model model;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    model.names.push_back("layer" + std::to_string(i));
    model.values.emplace_back(counts[i], 0.0F);
  }
  return model;
}

void fill_whole(Model& model, std::uint64_t seed) {
  CounterRng rng(seed);
  for (auto& tensor : model.values) {
    for (float& value : tensor) {
      const double u = rng.next_uniform();
      value = static_cast<float>(std::lround(8 * (u - 0.5) * (u - 0.5) * (u < 0.5 ? -4 : 4)));
    }
  }
}

std::vector<std::byte> join(std::span<const Bytes> pieces) {
  std::vector<std::byte> all;
  for (const Bytes piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
  return all;
}

std::unique_ptr<Channel> channel(std::string_view spec, const ChannelOptions& options = {}) {
  auto made = make_channel(spec, options);
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

const std::vector<std::string> kSpecs{"fp32",        "bf16", "3lc", "3lc:s=1.75", "3lc:s=1.5,mode=paper",
                                      "3lc:runs=off"};

TEST(Channel, RoundTripWithinTheBound) {
  for (const std::string& spec : kSpecs) {
    Model in = zeros({1000, 3, 0, 70000, 256, 255});
    Model out = zeros({1000, 3, 0, 70000, 256, 255});
    fill_whole(in, 1);
    const auto sender = channel(spec);
    const auto receiver = channel(spec);
    const MessageId id{5, 1, 2};
    const auto pieces = sender->encode(in.named(), id);
    ASSERT_TRUE(pieces) << pieces.error().message;
    const auto message = join(*pieces);
    EXPECT_LE(message.size(), sender->message_bound(in.named(), 0)) << spec;
    const auto status = receiver->decode(message, out.named(), id, Into::kOverwrite, 1.0F);
    ASSERT_TRUE(status) << spec << ": " << status.error().message;
    // Tensors below 256 elements travel raw.
    EXPECT_EQ(in.values[1], out.values[1]);
    EXPECT_EQ(in.values[5], out.values[5]);
    for (std::size_t i = 0; i < in.values.size(); ++i) {
      const auto residual = sender->residual(in.names[i], 0);
      if (residual.empty()) continue;
      for (std::size_t j = 0; j < residual.size(); ++j) {
        ASSERT_EQ(in.values[i][j], out.values[i][j] + residual[j]) << spec << " " << i << "," << j;
      }
    }
  }
}

// Those without a key-value form, too, and those that need memory to decode.
TEST(Channel, EveryCodecArrivesAsPairs) {
  for (const CodecInfo* info : registered_codecs()) {
    Model in = zeros({1000, 3});
    Model out = zeros({1000, 3});
    fill_whole(in, 1);
    const auto receiver = channel(info->name);
    const MessageId id{5, 1, 2};
    const auto message = join(*channel(info->name)->encode(in.named(), id));
    std::vector<Pairs> means(2);
    const Status as_pairs = receiver->decode_pairs(message, out.named(), id, 0.5F, means);
    ASSERT_TRUE(as_pairs) << info->name << ": " << as_pairs.error().message;
    ASSERT_TRUE(receiver->decode(message, out.named(), id, Into::kOverwrite, 0.5F)) << info->name;
    for (std::size_t i = 0; i < means.size(); ++i) {
      std::vector<float> dense(out.values[i].size(), 0.0F);
      for (std::size_t j = 0; j < means[i].keys.size(); ++j) dense[means[i].keys[j]] = means[i].values[j];
      EXPECT_EQ(dense, out.values[i]) << info->name;
    }
  }
}

TEST(Channel, LongMessagesAreCutIntoFrames) {
  Model in = zeros({1000000, 300000});
  Model out = zeros({1000000, 300000});
  fill_whole(in, 2);
  const auto both = channel("fp32");
  const auto pieces = both->encode(in.named(), {});
  ASSERT_TRUE(pieces);
  EXPECT_GE(pieces->size(), 10u);
  const auto message = join(*pieces);
  EXPECT_LE(message.size(), both->message_bound(in.named(), 0));
  ASSERT_TRUE(both->decode(message, out.named(), {}, Into::kOverwrite, 1.0F));
  EXPECT_EQ(in.values, out.values);
}

// Conservation: everything that went in comes out or is still in the residual, through any series of steps,
// some of them reverted by folding.
PROPERTY(ChannelProperty, ConservationThroughCommitsAndFolds) {
  const auto& spec = testing::drawn_of(kSpecs);
  const auto counts = testing::drawn_list(3, 1, 900);
  const auto min_elements = testing::drawn(0, 2) * 256;
  const auto steps = testing::drawn_list(6, 0, 2);
  const auto seed = testing::drawn(0, 1000000);
  const auto sender = channel(spec, {Policy{min_elements}, Revert::kFold});
  const auto receiver = channel(spec, {Policy{min_elements}, Revert::kFold});
  Model applied = zeros(counts);
  Model total = zeros(counts);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    Model in = zeros(counts);
    fill_whole(in, seed + step);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      for (std::size_t j = 0; j < counts[i]; ++j) total.values[i][j] += in.values[i][j];
    }
    const MessageId id{step};
    const auto pieces = sender->encode(in.named(), id);
    HOLDS(pieces.has_value());
    if (steps[step]) {
      HOLDS(receiver->decode(join(*pieces), applied.named(), id, Into::kAccumulate, 1.0F).has_value());
      sender->commit();
    } else {
      sender->revert();
    }
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto residual = sender->residual(total.names[i], 0);
    for (std::size_t j = 0; j < counts[i]; ++j) {
      const float left = residual.empty() ? 0.0F : residual[j];
      const float got = applied.values[i][j] + left;
      // Whole numbers times s = 1.75 or 1.5 stay exact; bf16 rounds above 256, which these do not reach.
      HOLDS(std::abs(got - total.values[i][j]) <= 1e-4F * (1.0F + std::abs(total.values[i][j])));
    }
  }
}

TEST(Channel, ExactRevertRestoresEveryBit) {
  for (const std::string& spec : kSpecs) {
    Model in = zeros({5000, 10});
    const auto sender = channel(spec, {Policy{}, Revert::kExact});
    for (std::uint64_t step = 0; step < 4; ++step) {
      fill_whole(in, step);
      ASSERT_TRUE(sender->encode(in.named(), {step}));
      sender->commit();
    }
    const auto before = sender->save();
    fill_whole(in, 77);
    ASSERT_TRUE(sender->encode(in.named(), {4, 0, 0, 1, 0}));
    ASSERT_TRUE(sender->encode(in.named(), {4, 0, 0, 1, 2}));
    sender->revert();
    EXPECT_EQ(*before, *sender->save()) << spec;
  }
}

TEST(Channel, FoldDropsWhatNoResidualMayHold) {
  std::vector<float> values{1.0F, std::numeric_limits<float>::infinity(), 2.0F};
  const Named part{"w", {values.data(), values.size(), DType::kF32}, 0};
  const auto sender = channel("3lc", {Policy{0}, Revert::kFold});
  ASSERT_FALSE(sender->encode(std::span(&part, 1), {}));
  sender->revert();
  const auto residual = sender->residual("w", 0);
  ASSERT_EQ(residual.size(), 3u);
  EXPECT_EQ(residual[0], 1.0F);
  EXPECT_EQ(residual[1], 0.0F);
  EXPECT_EQ(residual[2], 2.0F);
}

TEST(Channel, NotFiniteNamesThePart) {
  std::vector<float> good(300, 1.0F);
  std::vector<float> bad(300, 1.0F);
  bad[17] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Named> parts{{"conv1.weight", {good.data(), 300, DType::kF32}, 0},
                                 {"fc1.weight", {bad.data(), 300, DType::kF32}, 0}};
  const auto sender = channel("3lc", {Policy{}, Revert::kExact});
  const auto pieces = sender->encode(parts, {});
  testing::expect_refused(pieces, ErrorCode::kNotFinite, "fc1.weight");
  EXPECT_NE(pieces.error().message.find("17"), std::string::npos) << pieces.error().message;
  sender->revert();
  for (const float left : sender->residual("conv1.weight", 0)) EXPECT_EQ(left, 0.0F);
}

TEST(Channel, EveryMismatchIsNamed) {
  Model in = zeros({300});
  fill_whole(in, 3);
  const auto sender = channel("3lc");
  const MessageId id{5, 2, 4, 3, 1, 8.0F};
  const auto message = join(*sender->encode(in.named(), id));
  const auto expect = [&](const MessageId& other, const char* word) {
    Model out = zeros({300});
    testing::expect_refused(sender->decode(message, out.named(), other, Into::kOverwrite, 1.0F),
                            ErrorCode::kMismatch, word);
  };
  expect({6, 2, 4, 3, 1, 8.0F}, "step");
  expect({5, 3, 4, 3, 1, 8.0F}, "rank");
  expect({5, 2, 5, 3, 1, 8.0F}, "world");
  expect({5, 2, 4, 2, 1, 8.0F}, "bucket");
  expect({5, 2, 4, 3, 0, 8.0F}, "stage");
  expect({5, 2, 4, 3, 1, 4.0F}, "scale 8, but 4");
  expect({5, 2, 4, 3, 1}, "scale 8, but 1");
  Model out = zeros({300});
  const auto other_params = channel("3lc:s=1.5")->decode(message, out.named(), id, Into::kOverwrite, 1.0F);
  ASSERT_FALSE(other_params);
  EXPECT_NE(other_params.error().message.find("params_hash"), std::string::npos);
  const auto other_codec = channel("bf16")->decode(message, out.named(), id, Into::kOverwrite, 1.0F);
  ASSERT_FALSE(other_codec);
  EXPECT_NE(other_codec.error().message.find("params_hash"), std::string::npos);
  Model longer = zeros({301});
  const auto other_shape = sender->decode(message, longer.named(), id, Into::kOverwrite, 1.0F);
  ASSERT_FALSE(other_shape);
  EXPECT_NE(other_shape.error().message.find("301"), std::string::npos);
}

TEST(Channel, EveryBitFlipAndTruncationOfAMessageIsDetected) {
  for (const std::string& spec : kSpecs) {
    Model in = zeros({40, 7});
    fill_whole(in, 4);
    const auto both = channel(spec, {Policy{16}, Revert::kFold});
    const auto message = join(*both->encode(in.named(), {}));
    Model out = zeros({40, 7});
    ASSERT_TRUE(both->decode(message, out.named(), {}, Into::kOverwrite, 1.0F));
    for (std::size_t bit = 0; bit < message.size() * 8; ++bit) {
      auto bad = message;
      bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      EXPECT_FALSE(both->decode(bad, out.named(), {}, Into::kOverwrite, 1.0F)) << spec << " bit " << bit;
    }
    for (std::size_t bytes = 0; bytes < message.size(); ++bytes) {
      EXPECT_FALSE(both->decode(Bytes(message).first(bytes), out.named(), {}, Into::kOverwrite, 1.0F));
    }
    auto doubled = message;
    doubled.insert(doubled.end(), message.begin(), message.end());
    EXPECT_FALSE(both->decode(doubled, out.named(), {}, Into::kOverwrite, 1.0F));
  }
}

TEST(Channel, DecodingABadMessageLeavesNothingBehind) {
  Model in = zeros({500});
  fill_whole(in, 5);
  const auto both = channel("3lc");
  const auto message = join(*both->encode(in.named(), {}));
  both->commit();
  Model out = zeros({500});
  auto bad = message;
  bad.back() ^= std::byte{1};
  ASSERT_FALSE(both->decode(bad, out.named(), {}, Into::kOverwrite, 1.0F));
  Model fresh = zeros({500});
  ASSERT_TRUE(both->decode(message, out.named(), {}, Into::kOverwrite, 1.0F));
  ASSERT_TRUE(channel("3lc")->decode(message, fresh.named(), {}, Into::kOverwrite, 1.0F));
  EXPECT_EQ(out.values, fresh.values);
}

TEST(Channel, SaveAndLoad) {
  Model in = zeros({700, 20});
  const auto first = channel("3lc:s=1.5");
  for (std::uint64_t step = 0; step < 3; ++step) {
    fill_whole(in, step);
    ASSERT_TRUE(first->encode(in.named(), {step}));
    EXPECT_FALSE(first->save()) << "a step is open";
    first->commit();
  }
  const auto state = *first->save();
  const auto second = channel("3lc:s=1.5");
  ASSERT_TRUE(second->load(state));
  fill_whole(in, 9);
  EXPECT_EQ(join(*first->encode(in.named(), {})), join(*second->encode(in.named(), {})));
  EXPECT_EQ(channel("3lc:s=1.75")->load(state).error().code, ErrorCode::kMismatch);
  for (std::size_t bytes = 0; bytes < state.size(); bytes += 7) {
    EXPECT_FALSE(channel("3lc:s=1.5")->load(Bytes(state).first(bytes)));
  }
  auto bad = state;
  bad[state.size() / 2] ^= std::byte{4};
  EXPECT_EQ(channel("3lc:s=1.5")->load(bad).error().code, ErrorCode::kCorrupt);
}

TEST(Channel, SeveralMessagesAreEachAsAlone) {
  Model in = zeros({40, 700, 90});
  fill_whole(in, 5);
  const std::vector<Named> parts = in.named();
  const std::vector<MessageLayout> layouts{std::span(parts).first(2), std::span(parts).last(1)};
  for (const std::string& spec : kSpecs) {
    const auto together = channel(spec);
    const auto alone = channel(spec);
    std::vector<std::span<const Bytes>> encoded;
    ASSERT_TRUE(together->encode_all(layouts, {}, 0, encoded));
    ASSERT_EQ(encoded.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(join(encoded[i]), join(*alone->encode(layouts[i], {})));
    }
    Model out = zeros({40, 700, 90});
    Model one_by_one = out;
    const std::vector<Named> to = out.named();
    const std::vector<ReceivedMessage> received{{encoded[0], std::span(to).first(2)},
                                                {encoded[1], std::span(to).last(1)}};
    ASSERT_TRUE(together->decode_all(received, {}, Into::kAccumulate, 0.5F));
    const std::vector<Named> slots = one_by_one.named();
    ASSERT_TRUE(alone->decode(encoded[0], std::span(slots).first(2), {}, Into::kAccumulate, 0.5F));
    ASSERT_TRUE(alone->decode(encoded[1], std::span(slots).last(1), {}, Into::kAccumulate, 0.5F));
    EXPECT_EQ(out.values, one_by_one.values);
    EXPECT_FALSE(together->encode_all(layouts, {1}, 0, encoded)) << "another step is open";
    const std::vector<ReceivedMessage> swapped{received[1], received[0]};
    EXPECT_TRUE(together->decode_all(swapped, {}, Into::kAccumulate, 0.5F)) << "in whatever order";
    EXPECT_FALSE(together->decode_all(received, {1}, Into::kAccumulate, 0.5F));
  }
}

TEST(Channel, OneStepAtATime) {
  Model in = zeros({300});
  const auto sender = channel("3lc");
  ASSERT_TRUE(sender->encode(in.named(), {1}));
  testing::expect_refused(sender->encode(in.named(), {2}), ErrorCode::kState);
}

}  // namespace
}  // namespace deltawire::channel_test
