#include "base/little_endian.h"

#include <array>
#include <cstdint>

#include <gtest/gtest.h>

namespace deltawire {
namespace {

TEST(LittleEndian, TheLeastSignificantByteComesFirst) {
  std::array<std::byte, 10> bytes{};
  store_le<std::uint64_t>(bytes.data() + 1, 0x0807060504030201u);  // at an odd address
  for (unsigned i = 0; i < 10; ++i) {
    EXPECT_EQ(std::to_integer<unsigned>(bytes[i]), i < 9 ? i : 0u) << i;
  }
  EXPECT_EQ(load_le<std::uint64_t>(bytes.data() + 1), 0x0807060504030201u);
  EXPECT_EQ(load_le<std::uint32_t>(bytes.data() + 1), 0x04030201u);
  EXPECT_EQ(load_le<std::uint16_t>(bytes.data() + 3), 0x0403u);
  store_le<std::uint16_t>(bytes.data() + 3, 0xBBAA);
  EXPECT_EQ(load_le<std::uint32_t>(bytes.data() + 2), 0x05BBAA02u);
}

}  // namespace
}  // namespace deltawire
