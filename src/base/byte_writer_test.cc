#include "base/byte_writer.h"

#include <array>

#include <gtest/gtest.h>

namespace deltawire {
namespace {

TEST(ByteWriter, PutsOneThingBehindTheOther) {
  std::array<std::byte, 11> bytes{};
  ByteWriter writer(bytes);
  writer.text("DW");
  writer.number<std::uint8_t>(7);
  writer.number<std::uint16_t>(0x0102);
  writer.floats(std::array{1.0F});
  writer.number<std::uint16_t>(9);
  constexpr std::array kExpected = {'D', 'W', '\7', '\2', '\1', '\0', '\0', '\x80', '\x3F', '\x9', '\0'};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(bytes[i], static_cast<std::byte>(kExpected[i])) << i;
  }
}

TEST(ByteWriter, FloatsAreTakenOffTheFront) {
  std::array<std::byte, 13> bytes{};
  ByteWriter(bytes).floats(std::array{1.5F, -2.0F, 3.0F});
  std::span<const std::byte> rest(bytes);
  EXPECT_EQ(take_floats(rest, 2), (std::vector{1.5F, -2.0F}));
  EXPECT_EQ(take_floats(rest, 1), std::vector{3.0F});
  EXPECT_EQ(rest.size(), 1U);
}

}  // namespace
}  // namespace deltawire
