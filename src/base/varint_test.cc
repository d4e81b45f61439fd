#include "base/varint.h"

#include <gtest/gtest.h>

namespace deltawire {
namespace {

using Text = std::vector<std::byte>;

Text text(std::initializer_list<unsigned> bytes) {
  Text out;
  for (const unsigned byte : bytes) out.push_back(static_cast<std::byte>(byte));
  return out;
}

// The number that the bytes begin with; the rest is checked.
std::optional<std::uint64_t> taken(const Text& bytes, std::uint64_t most, std::size_t rest = 0) {
  std::span<const std::byte> left(bytes);
  const auto number = take_varint(left, most);
  if (number) {
    EXPECT_EQ(left.size(), rest);
  }
  return number;
}

TEST(Varint, BytesOfNumbers) {
  const std::vector<std::pair<std::uint64_t, Text>> numbers{
      {0, text({0})},
      {1, text({1})},
      {127, text({0x7F})},
      {128, text({0x80, 1})},
      {300, text({0xAC, 2})},
      {16383, text({0xFF, 0x7F})},
      {16384, text({0x80, 0x80, 1})},
      {UINT32_MAX, text({0xFF, 0xFF, 0xFF, 0xFF, 0x0F})},
      {UINT64_MAX, text({0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1})}};
  for (const auto& [number, bytes] : numbers) {
    Text out = text({9});
    append_varint(out, number);
    Text wanted = text({9});
    wanted.insert(wanted.end(), bytes.begin(), bytes.end());
    EXPECT_EQ(out, wanted) << number;
    EXPECT_EQ(taken(bytes, UINT64_MAX), number);
    EXPECT_EQ(taken(bytes, number), number);
    if (number > 0) {
      EXPECT_EQ(taken(bytes, number - 1), std::nullopt) << number;
    }
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
      EXPECT_EQ(taken(Text(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(cut)), UINT64_MAX),
                std::nullopt);
    }
  }
}

TEST(Varint, ReadsOnlyItsOwnBytes) {
  EXPECT_EQ(taken(text({5, 0x80, 1}), 255, 2), 5u);
  EXPECT_EQ(taken(text({0x80, 1, 7}), 255, 1), 128u);
}

TEST(Varint, LongerFormsAreNoNumbers) {
  EXPECT_EQ(taken(text({0x80, 0}), UINT64_MAX), std::nullopt);
  EXPECT_EQ(taken(text({0x81, 0}), UINT64_MAX), std::nullopt);
  EXPECT_EQ(taken(text({0x80, 0x80, 0}), UINT64_MAX), std::nullopt);
  EXPECT_EQ(taken(text({0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x81, 0}), UINT64_MAX),
            std::nullopt);
}

TEST(Varint, BeyondSixtyFourBits) {
  EXPECT_EQ(taken(text({0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2}), UINT64_MAX), std::nullopt);
  EXPECT_EQ(taken(text({0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1}), UINT64_MAX),
            std::nullopt);
}

}  // namespace
}  // namespace deltawire
