// Threads decode runs of chunks: the values and the errors are those of one thread.
#include <deque>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <time.h>

#include "base/brief_testing.h"
#include "base/random.h"
#include "channel/channel_testing.h"
#include "channel/message_testing.h"
#include "channel/metered_channel.h"
#include "deltawire/workers.h"

namespace deltawire::testing::decode_runs_test {
namespace {

std::unique_ptr<Channel> with_threads(std::string_view spec, int threads) {
  auto made = make_metered_channel(spec, {.policy = kPolicy}, {nullptr, std::make_shared<Workers>(threads)});
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

// In brief the codecs as they are by default.
std::vector<std::string> all_specs() {
  std::vector<std::string> specs;
  for (const CodecInfo* info : registered_codecs()) {
    specs.emplace_back(info->name);
    if (whole_or_brief(false, true)) continue;
    for (const std::string_view example : info->examples) specs.emplace_back(example);
  }
  return specs;
}

// Of many chunks, of one, raw (some next to each other) and empty; slots of the same names.
struct Tensors {
  Tensors() {
    for (const std::size_t count : {300001U, 5U, 70000U, 0U, 41000U, 7U, 3U}) {
      names.push_back("w" + std::to_string(names.size()));
      values.push_back(numbers(count, names.size()));
    }
  }

  std::vector<Named> named_values() {
    std::vector<Named> parts;
    parts.reserve(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) parts.push_back(named(names[i], values[i]));
    return parts;
  }

  std::deque<std::string> names;
  std::deque<Values> values;
};

struct Slots {
  explicit Slots(const std::vector<Named>& parts) {
    for (const Named& part : parts) {
      values.emplace_back(part.tensor.count, 0.25F);
      named_slots.push_back(named(part.name, values.back()));
    }
  }

  std::deque<Values> values;
  std::vector<Named> named_slots;
};

class DecodeThreads : public ::testing::TestWithParam<int> {};

TEST_P(DecodeThreads, ChangeNoValue) {
  Tensors tensors;
  const std::vector<Named> parts = tensors.named_values();
  for (const std::string& spec : all_specs()) {
    const auto one = with_threads(spec, 1);
    const auto several = with_threads(spec, GetParam());
    const auto pieces = one->encode(parts, step_id(0));
    ASSERT_TRUE(pieces) << spec << ": " << pieces.error().message;
    for (const Into into : {Into::kOverwrite, Into::kAccumulate}) {
      Slots expected(parts);
      Slots got(parts);
      ASSERT_TRUE(one->decode(*pieces, expected.named_slots, step_id(0), into, 0.5F)) << spec;
      const Status decoded = several->decode(*pieces, got.named_slots, step_id(0), into, 0.5F);
      ASSERT_TRUE(decoded) << spec << ": " << decoded.error().message;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        ASSERT_TRUE(same_bits(expected.values[i], got.values[i])) << spec << ", part " << i;
      }
    }
  }
}

TEST_P(DecodeThreads, ChangeNoValueOf16Bits) {
  std::vector<std::uint16_t> values(300001);
  CounterRng random(3);
  for (std::uint16_t& value : values) value = static_cast<std::uint16_t>(random.next() % 0x3F80);
  for (const char* spec : {"3lc", "bf16", "gcomp", "zstd", "sbc"}) {
    const Named part{"w", {values.data(), values.size(), DType::kBF16}, 0};
    const auto one = with_threads(spec, 1);
    const auto pieces = one->encode(std::span(&part, 1), step_id(0));
    ASSERT_TRUE(pieces) << spec << ": " << pieces.error().message;
    std::vector<std::uint16_t> backs[2];
    for (std::size_t i = 0; i < 2; ++i) {
      backs[i].resize(values.size());
      const Named slot{"w", {backs[i].data(), backs[i].size(), DType::kBF16}, 0};
      const auto channel = with_threads(spec, i == 0 ? 1 : GetParam());
      ASSERT_TRUE(channel->decode(*pieces, std::span(&slot, 1), step_id(0), Into::kOverwrite, 1.0F)) << spec;
    }
    ASSERT_EQ(backs[0], backs[1]) << spec;
  }
}

// A part of 300,001 elements in one segment, as its codec wrote it.
struct Encoded {
  explicit Encoded(const char* codec_spec) : spec(codec_spec), values(numbers(300001, 11)) {
    const auto codec = *make_codec(spec);
    const TensorView view{values.data(), values.size(), DType::kF32};
    const Sizes sizes = codec->sizes(view);
    payload.resize(sizes.payload_bytes);
    ends.resize(sizes.chunks);
    std::vector<std::byte> scratch(sizes.scratch_bytes);
    const auto encoded = *codec->encode(view, {}, {payload, ends}, {.scratch = scratch});
    payload.resize(encoded.payload_bytes);
    ends.resize(encoded.chunks);
    segment = {
        .count = 300001, .codec = codec->info().id, .scalar = encoded.scalar, .scalar2 = encoded.scalar2};
  }

  Named slot() { return named("w", values); }

  // The message with this payload.
  std::vector<std::byte> framed(const std::vector<std::byte>& bytes) {
    const Named part = slot();
    std::vector<std::byte> message;
    FrameBuilder builder(header_of(std::span(&part, 1), kId, spec), message);
    builder.add_segment(segment, bytes, ends);
    builder.finish();
    message.insert(message.end(), bytes.begin(), bytes.end());
    return message;
  }

  const char* spec;
  Values values;
  std::vector<std::byte> payload;
  std::vector<std::uint32_t> ends;
  Segment segment;
};

// Faults of codecs, behind good checksums, and behind bad ones; two at a time, in different runs mostly.
TEST_P(DecodeThreads, NameTheSameError) {
  CounterRng random(5);
  for (const char* spec : {"3lc", "gcomp", "int8", "sbc:p=0.1", "zstd"}) {
    Encoded good(spec);
    const auto one = with_threads(spec, 1);
    const auto several = with_threads(spec, GetParam());
    const auto text_of = [&](Channel& channel, const std::vector<std::byte>& message) {
      Values back(good.values.size());
      const Named slot = named("w", back);
      const Bytes piece(message);
      const Status decoded =
          channel.decode(std::span(&piece, 1), std::span(&slot, 1), kId, Into::kOverwrite, 1.0F);
      return decoded ? std::string() : decoded.error().message;
    };
    ASSERT_EQ(text_of(*several, good.framed(good.payload)), "") << spec;
    int faults = 0;
    for (int trial = 0; trial < whole_or_brief(20, 10); ++trial) {
      std::vector<std::byte> bytes = good.payload;
      for (int i = 0; i < 2; ++i) {
        bytes[random.next() % bytes.size()] ^= static_cast<std::byte>(1U << random.next() % 8);
      }
      std::vector<std::byte> message = good.framed(bytes);
      if (trial % 3 == 0) message[message.size() - 1 - random.next() % bytes.size()] ^= std::byte{4};
      const std::string expected = text_of(*one, message);
      ASSERT_EQ(text_of(*several, message), expected) << spec << ", " << trial;
      faults += expected.empty() ? 0 : 1;
    }
    EXPECT_GE(faults, whole_or_brief(7, 3)) << spec;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, DecodeThreads, ::testing::Values(2, 3, 8));

// Both threads must be inside at once for the work to be shared: the codec's chunks are taken by both.
TEST(DecodeRuns, AreTakenByAllThreads) {
  const auto workers = std::make_shared<Workers>(2);
  std::vector<float> values(std::size_t{1} << 22, 1.0F);
  const Named part = named("w", values);
  const auto made = make_metered_channel("3lc", {}, {nullptr, workers});
  const auto pieces = (*made)->encode(std::span(&part, 1), step_id(0));
  ASSERT_TRUE(pieces);
  const auto used_by_process = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const auto used_here = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  // Until the other thread has had its share, as it has at some time on the busiest machine.
  for (int i = 0; i < 10000; ++i) {
    const double all = used_by_process();
    const double here = used_here();
    ASSERT_TRUE((*made)->decode(*pieces, std::span(&part, 1), step_id(0), Into::kOverwrite, 1.0F));
    if (used_by_process() - all > 1.1 * (used_here() - here)) return;
  }
  FAIL() << "one thread has decoded all";
}

}  // namespace
}  // namespace deltawire::testing::decode_runs_test
