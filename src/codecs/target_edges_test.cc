// Where vector kernels have edges: lengths around their vectors', any alignment, and arrays so long that they
// are stored past the caches. All targets give what the reference gives, and write nothing else.
#include <algorithm>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/copying.h"
#include "base/prefetch.h"
#include "codecs/codec_testing.h"
#include "codecs/dispatch.h"
#include "codecs/spec_on_target_testing.h"

namespace deltawire::target_edges_test {
namespace {

using namespace testing;

constexpr float kGuard = 1234.5F;

// Floats between guards, the first of them `offset` floats behind a boundary of 64 bytes.
class Floats {
 public:
  Floats(std::size_t count, std::size_t offset) : all_(count + 2 * kAround, kGuard), count_(count) {
    const auto address = reinterpret_cast<std::uintptr_t>(all_.data());
    begin_ = (64 - address % 64) % 64 / sizeof(float) + 16 + offset;
  }
  std::span<float> inside() { return {all_.data() + begin_, count_}; }
  void expect_guards() const {
    const auto is_guard = [](float value) { return value == kGuard; };
    const auto begin = all_.begin() + static_cast<std::ptrdiff_t>(begin_);
    const auto end = begin + static_cast<std::ptrdiff_t>(count_);
    EXPECT_TRUE(std::all_of(all_.begin(), begin, is_guard)) << "wrote before its floats";
    EXPECT_TRUE(std::all_of(end, all_.end(), is_guard)) << "wrote behind its floats";
  }

 private:
  static constexpr std::size_t kAround = 64;
  std::vector<float> all_;
  std::size_t count_;
  std::size_t begin_ = 0;
};

constexpr std::size_t kDrawn = 65536;

const std::vector<float>& some_values() {
  static const std::vector<float> values = testing::normal_values(kDrawn, 1);
  return values;
}

struct Coded {
  Encoded part;
  Floats left;
};

class TargetEdges : public OnTarget {
 protected:
  static Coded encoded(const Codec& codec, Floats& in, Floats& before, std::size_t offset) {
    const TensorView view{in.inside().data(), in.inside().size(), DType::kF32};
    const Sizes sizes = codec.sizes(view);
    Coded coded{{}, Floats(in.inside().size(), offset)};
    coded.part.payload.resize(sizes.payload_bytes);
    coded.part.chunk_ends.resize(sizes.chunks);
    std::vector<std::byte> scratch(sizes.scratch_bytes);
    const auto written =
        codec.encode(view, {before.inside(), coded.left.inside()},
                     {coded.part.payload, coded.part.chunk_ends}, {.stream = 3, .scratch = scratch});
    EXPECT_TRUE(written) << written.error().message;
    coded.part.payload.resize(written->payload_bytes);
    coded.part.chunk_ends.resize(written->chunks);
    coded.part.scalar = written->scalar;
    coded.part.scalar2 = written->scalar2;
    return coded;
  }

  void compare(std::size_t count, std::size_t offset) const {
    SCOPED_TRACE(std::to_string(count) + " values, " + std::to_string(offset) + " behind a boundary");
    Floats in(count, offset);
    Floats before(count, offset);
    const std::vector<float>& values = some_values();
    for (std::size_t i = 0; i < count; ++i) {
      in.inside()[i] = values[i % kDrawn];
      before.inside()[i] = values[(i + i / 7) % kDrawn];
    }
    Coded wanted = encoded(*reference_, in, before, offset);
    Coded coded = encoded(*other_, in, before, offset);
    coded.left.expect_guards();
    ASSERT_EQ(coded.part.payload, wanted.part.payload);
    ASSERT_EQ(coded.part.chunk_ends, wanted.part.chunk_ends);
    ASSERT_EQ(coded.part.scalar, wanted.part.scalar);
    ASSERT_EQ(coded.part.scalar2, wanted.part.scalar2);
    ASSERT_TRUE(testing::same_bits(coded.left.inside(), wanted.left.inside()));
    for (const float scale : {1.0F, 0.3F}) {
      Floats slot(count, offset);
      Floats other_slot(count, offset);
      const auto decode = [&](const Codec& codec, Floats& out) {
        const TensorSlot slot_of{out.inside().data(), count, DType::kF32};
        std::vector<std::byte> scratch(codec.decode_scratch(slot_of));
        return codec.decode(wanted.part.view(), slot_of, Into::kOverwrite, scale, {.scratch = scratch});
      };
      ASSERT_TRUE(decode(*reference_, slot));
      ASSERT_TRUE(decode(*other_, other_slot));
      other_slot.expect_guards();
      ASSERT_TRUE(testing::same_bits(slot.inside(), other_slot.inside()));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Codecs, TargetEdges, ::testing::ValuesIn(on_every_target(every_spec())),
                         spec_on_target_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TargetEdges);  // a build may have the reference alone

// In brief every fourth after the first 70.
TEST_P(TargetEdges, EveryShortLength) {
  const auto after = whole_or_brief<std::size_t>(1, 4);
  for (std::size_t count = 1; count <= 200; count += count < 70 ? 1 : after) compare(count, count % 16);
}

// The lengths around a chunk's end, and of blocks in which sums are taken. In brief one: EveryTarget.Parts
// has longer ones.
TEST_P(TargetEdges, LengthsAroundChunks) {
  compare(65537, 0);
  if (whole_or_brief(false, true)) return;
  for (const std::size_t count : {16383U, 40961U, 65535U, 65536U, 65600U, 131103U}) compare(count, 0);
}

// A codec's examples differ in what is coded, not in how it is stored.
std::vector<SpecOnTarget> bare_names() {
  std::vector<SpecOnTarget> cases = on_every_target(every_spec());
  std::erase_if(cases, [](const auto& each) { return std::get<0>(each).find(':') != std::string::npos; });
  return cases;
}

class TargetStreams : public TargetEdges {};

INSTANTIATE_TEST_SUITE_P(Codecs, TargetStreams, ::testing::ValuesIn(bare_names()), spec_on_target_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TargetStreams);

TEST_P(TargetStreams, LongParts) {
  constexpr std::size_t kCount = kStreamedBytes / sizeof(float);
  for (const std::size_t offset : {1U, 4U}) compare(kCount + 37, offset);
  if (whole_or_brief(true, false)) compare(kCount + 37, 0);
}

TEST(StreamedCopy, CopiesItsBytesAndNoOthers) {
  std::vector<std::byte> from(400);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i % 251 + 1);
  for (std::size_t offset = 0; offset < 66; ++offset) {
    for (const std::size_t bytes : {0U, 1U, 31U, 63U, 64U, 65U, 127U, 128U, 129U, 200U, 300U}) {
      std::vector<std::byte> to(500);
      copy_streamed(to.data() + offset, from.data() + offset, bytes);
      std::vector<std::byte> expected(500);
      for (std::size_t i = offset; i < offset + bytes; ++i) expected[i] = from[i];
      EXPECT_EQ(to, expected) << offset << " " << bytes;
    }
  }
}

}  // namespace
}  // namespace deltawire::target_edges_test
