// Channel::encode_to and encode_in_place give the bytes of Channel::encode, whichever way they go to their
// place.
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/random.h"
#include "base/refusal_testing.h"
#include "deltawire/channel.h"

namespace deltawire::encode_to_test {
namespace {

using Message = std::vector<std::byte>;

struct Tensor {
  std::string name;
  std::vector<float> values;
};

std::vector<float> normal(std::size_t count, std::uint64_t seed) {
  CounterRng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng.next_uniform() + rng.next_uniform() - 1) * 0.01F;
  return values;
}

std::vector<Named> named(std::vector<Tensor>& tensors) {
  std::vector<Named> parts;
  for (Tensor& each : tensors) {
    parts.push_back({each.name, {each.values.data(), each.values.size(), DType::kF32}});
  }
  return parts;
}

std::unique_ptr<Channel> channel(std::string_view spec, const ChannelOptions& options = {}) {
  auto made = make_channel(spec, options);
  EXPECT_TRUE(made) << made.error().message;
  return *std::move(made);
}

Message joined(const Result<std::span<const Bytes>>& pieces) {
  Message all;
  EXPECT_TRUE(pieces) << pieces.error().message;
  for (const Bytes piece : *pieces) all.insert(all.end(), piece.begin(), piece.end());
  return all;
}

Message joined(Channel& sender, std::span<const Named> parts, const MessageId& id) {
  return joined(sender.encode(parts, id));
}

Message written(Channel& sender, std::span<const Named> parts, const MessageId& id) {
  Message all(sender.message_bound(parts, id.step));
  const auto bytes = sender.encode_to(parts, id, all);
  EXPECT_TRUE(bytes) << bytes.error().message;
  all.resize(bytes.value_or(0));
  return all;
}

// Three steps, the second of which is reverted, by three channels that differ in nothing but this call.
void expect_the_same(std::string_view spec, std::span<const Named> parts,
                     const ChannelOptions& options = {}) {
  const auto one = channel(spec, options);
  const auto other = channel(spec, options);
  const auto in_place = channel(spec, options);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const MessageId id{.step = step, .rank = 1, .world = 2};
    const Message message = joined(*one, parts, id);
    ASSERT_EQ(message, written(*other, parts, id)) << spec << ", step " << step;
    ASSERT_EQ(message, joined(in_place->encode_in_place(parts, id, 0))) << spec << ", step " << step;
    for (Channel* each : {one.get(), other.get(), in_place.get()})
      step == 1 ? each->revert() : each->commit();
    for (Channel* each : {other.get(), in_place.get()}) {
      ASSERT_EQ(one->last_step().size(), each->last_step().size());
      for (std::size_t i = 0; i < one->last_step().size(); ++i) {
        EXPECT_EQ(one->last_step()[i].payload_bytes, each->last_step()[i].payload_bytes) << spec;
      }
      EXPECT_EQ(*one->save(), *each->save()) << spec;
    }
  }
}

TEST(EncodeTo, GivesTheBytesOfEncodeWithEveryCodec) {
  std::vector<Tensor> tensors{{"a", normal(1000, 1)},
                              {"raw", normal(100, 2)},
                              {"raw 2", normal(40, 3)},
                              {"none", {}},
                              {"b", normal(70001, 4)},
                              {"raw 3", normal(7, 5)},
                              {"zeros", std::vector<float>(5000)},
                              {"c", normal(300, 6)}};
  const auto parts = named(tensors);
  for (const CodecInfo* info : registered_codecs()) {
    expect_the_same(info->name, parts);
    expect_the_same(info->name, parts, {.policy = {}, .error_feedback = false});
    expect_the_same(info->name, parts, {.policy = {}, .revert = Revert::kFold});
  }
  expect_the_same("b: fp32, a: gcomp, zeros: sbc:p=1%, rest 3lc", parts);
  expect_the_same("b: fp32 with momentum=0.9, rest gcomp", parts);
}

// Frames of one chunk and of many, chunks that wait for the next part's, and the ring's end in between.
TEST(EncodeTo, LongPartsAreCutAlike) {
  const float odd = std::numeric_limits<float>::quiet_NaN();
  std::vector<Tensor> tensors{{"long", normal(1100000, 1)}, {"zeros", std::vector<float>(1500000)},
                              {"short", normal(70000, 2)},  {"longer", normal(800000, 3)},
                              {"raw", normal(30, 4)},       {"last", normal(400000, 5)}};
  tensors[3].values[700000] = odd;
  for (std::size_t i = 300000; i < 700000; ++i) tensors[0].values[i] = 0;
  const auto parts = named(tensors);
  constexpr const char* kSpecs[] = {
      "gcomp",       "short: 3lc, rest gcomp", "longer: bf16, zeros: fp32, rest gcomp", "fp32", "bf16",
      "gcomp:cut=6", "gcomp:lossless=on"};
  for (const char* spec :
       std::span(kSpecs).first(testing::whole_or_brief(std::size(kSpecs), std::size_t{3}))) {
    expect_the_same(spec, parts);
  }
}

TEST(EncodeTo, SixteenBitsAndSignificancesAreCodedAlike) {
  std::vector<std::uint16_t> halves(400000);
  CounterRng rng(3);
  for (std::uint16_t& half : halves) half = static_cast<std::uint16_t>(0x3C00 + 64 * rng.next_uniform());
  std::vector<float> values = normal(400000, 8);
  std::vector<float> significance(values.size());
  for (float& each : significance) each = static_cast<float>(rng.next_uniform());
  const std::vector<Named> parts{
      {"halves", {halves.data(), halves.size(), DType::kBF16}},
      {"seen", {values.data(), values.size(), DType::kF32, nullptr, 0, significance.data()}}};
  for (const char* spec : {"gcomp", "fp32", "bf16"}) expect_the_same(spec, parts);
}

// What waits is sent, by a codec that would keep nothing itself.
TEST(EncodeTo, WhatWaitsLeavesWithTheNextMessage) {
  std::vector<Tensor> tensors{{"a", normal(70000, 1)}};
  expect_the_same("a step<1: 3lc, rest bf16", named(tensors));
}

// Bytes of the pieces that lie in the tensor's own memory.
std::uint64_t bytes_in(const Tensor& tensor, std::span<const Bytes> pieces) {
  const Bytes own = std::as_bytes(std::span(tensor.values));
  std::uint64_t bytes = 0;
  for (const Bytes piece : pieces) {
    if (piece.data() >= own.data() && piece.data() < own.data() + own.size()) bytes += piece.size();
  }
  return bytes;
}

TEST(EncodeInPlace, LongValuesStayWhereTheyAre) {
  std::vector<Tensor> tensors{
      {"long", normal(700000, 1)}, {"raw", normal(100, 2)}, {"short", normal(300, 3)}};
  const auto parts = named(tensors);
  const auto sender = channel("fp32");
  EXPECT_TRUE(sender->sends_values(parts, 0));
  const auto pieces = sender->encode_in_place(parts, {}, 0);
  ASSERT_TRUE(pieces);
  EXPECT_EQ(bytes_in(tensors[0], *pieces), sizeof(float) * tensors[0].values.size());
  EXPECT_EQ(bytes_in(tensors[1], *pieces), 0U);
  EXPECT_EQ(bytes_in(tensors[2], *pieces), 0U);
}

TEST(EncodeInPlace, OneCodedPartKeepsTheMessageTogether) {
  std::vector<Tensor> tensors{{"long", normal(70000, 1)}, {"coded", normal(70000, 2)}};
  const auto parts = named(tensors);
  const auto sender = channel("coded: bf16, rest fp32");
  EXPECT_FALSE(sender->sends_values(parts, 0));
  const auto pieces = sender->encode_in_place(parts, {}, 0);
  ASSERT_TRUE(pieces);
  EXPECT_EQ(bytes_in(tensors[0], *pieces), 0U);
}

// What a revert would fold back must still be what was sent.
TEST(EncodeInPlace, WhatIsKeptOrWaitsIsCopied) {
  std::vector<Tensor> tensors{{"w", normal(70000, 1)}};
  const auto parts = named(tensors);
  EXPECT_FALSE(channel("fp32", {.policy = {}, .revert = Revert::kFold})->sends_values(parts, 0));
  EXPECT_FALSE(channel("fp32 with momentum=0.9")->sends_values(parts, 0));
  const auto sender = channel("w step<1: 3lc, rest fp32");
  ASSERT_TRUE(sender->encode(parts, {}));
  sender->commit();
  EXPECT_FALSE(sender->sends_values(parts, 1)) << "a residual waits";
  ASSERT_TRUE(sender->encode_in_place(parts, {.step = 1}, 0));
  sender->commit();
  EXPECT_TRUE(sender->sends_values(parts, 2));
}

TEST(EncodeTo, TooLittleRoomBeginsNothing) {
  std::vector<Tensor> tensors{{"a", normal(70000, 1)}};
  const auto parts = named(tensors);
  const auto sender = channel("gcomp");
  Message room(sender->message_bound(parts, 0) - 1);
  testing::expect_refused(sender->encode_to(parts, {}, room), ErrorCode::kOutputTooSmall);
  EXPECT_TRUE(sender->save());  // no step is open
}

TEST(EncodeTo, AnErrorNamesThePart) {
  std::vector<Tensor> tensors{{"a", normal(70000, 1)}, {"b", normal(70000, 2)}};
  tensors[1].values[5] = std::numeric_limits<float>::infinity();
  const auto parts = named(tensors);
  const auto sender = channel("a: fp32, rest 3lc");
  Message room(sender->message_bound(parts, 0));
  testing::expect_refused(sender->encode_to(parts, {}, room), ErrorCode::kNotFinite, "'b'");
  sender->revert();
  tensors[1].values[5] = 0;
  EXPECT_EQ(written(*sender, parts, {}), joined(*channel("a: fp32, rest 3lc"), parts, {}));
}

}  // namespace
}  // namespace deltawire::encode_to_test
