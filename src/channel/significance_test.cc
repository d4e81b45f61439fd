// Significance on its way from the caller to the codec: through a Channel and through a file.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "deltawire/channel.h"
#include "deltawire/file.h"

namespace deltawire::significance_test {
namespace {

constexpr std::uint64_t kCount = 5000;

std::vector<float> values() {
  CounterRng random(1);
  std::vector<float> numbers(kCount);
  for (float& number : numbers) number = static_cast<float>(random.next_uniform() - 0.5);
  return numbers;
}

std::uint64_t message_bytes(std::string_view spec, std::vector<float> numbers, const float* significance) {
  const auto channel = make_channel(spec);
  TensorSlot slot{numbers.data(), numbers.size(), DType::kF32};
  slot.significance = significance;
  const Named part{"w", slot};
  const auto pieces = (*channel)->encode(std::span(&part, 1), MessageId{});
  EXPECT_TRUE(pieces) << pieces.error().message;
  std::uint64_t bytes = 0;
  for (const Bytes piece : *pieces) bytes += piece.size();
  return bytes;
}

std::vector<std::byte> file_of(std::string_view spec, std::vector<float> numbers, const float* significance) {
  TensorView view{numbers.data(), numbers.size(), DType::kF32};
  view.significance = significance;
  const std::uint64_t shape[] = {numbers.size()};
  auto file = encode_file(view, shape, spec, Policy{});
  EXPECT_TRUE(file) << file.error().message;
  return *std::move(file);
}

// A codec that says it reads significance sends less where nothing can be seen, and as much as without any
// where 0 says that nothing may be cut; the others don't look at it.
TEST(Significance, ReachesTheCodecThroughChannelsAndFiles) {
  const std::vector<float> invisible(kCount, 1e30F);
  const std::vector<float> unknown(kCount, 0.0F);
  int readers = 0;
  for (const CodecInfo* info : registered_codecs()) {
    const std::uint64_t plain = message_bytes(info->name, values(), nullptr);
    const std::uint64_t cut = message_bytes(info->name, values(), invisible.data());
    const auto file = file_of(info->name, values(), invisible.data());
    if (info->significance) {
      ++readers;
      EXPECT_LT(cut, plain / 2) << info->name;
      EXPECT_LT(file.size(), file_of(info->name, values(), nullptr).size() / 2) << info->name;
    } else {
      EXPECT_EQ(cut, plain) << info->name;
      EXPECT_EQ(file, file_of(info->name, values(), nullptr)) << info->name;
    }
    // A reader may spend a few bytes on saying so.
    EXPECT_LE(message_bytes(info->name, values(), unknown.data()), plain + plain / 100) << info->name;
    EXPECT_GE(message_bytes(info->name, values(), unknown.data()), plain) << info->name;
  }
  EXPECT_GE(readers, 1);
}

// Parameters that turn the cutting by significance off turn the flag off: the optimizer would have no effect.
TEST(Significance, TheFlagFollowsTheParameters) {
  EXPECT_TRUE((*make_codec("gcomp"))->info().significance);
  for (const char* spec : {"gcomp:cut=18", "gcomp:cut=0", "gcomp:lossless=on"}) {
    EXPECT_FALSE((*make_codec(spec))->info().significance) << spec;
    const std::vector<float> invisible(kCount, 1e30F);
    EXPECT_EQ(message_bytes(spec, values(), invisible.data()), message_bytes(spec, values(), nullptr))
        << spec;
  }
}

}  // namespace
}  // namespace deltawire::significance_test
