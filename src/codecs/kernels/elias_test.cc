// Elias' codes, bit by bit, against the strings of the literature and back.
#include "codecs/kernels/elias.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace deltawire::elias_test {
namespace {

std::string text_of(const EliasBits& code) {
  std::string text;
  for (unsigned i = 0; i < code.bits; ++i) text += (code.value >> i & 1) != 0 ? '1' : '0';
  return text;
}

// What the rules of Elias 1975 give.
TEST(Elias, GammaIsTheStringOfThePaper) {
  EXPECT_EQ(text_of(gamma_bits_of(1)), "1");
  EXPECT_EQ(text_of(gamma_bits_of(2)), "010");
  EXPECT_EQ(text_of(gamma_bits_of(3)), "011");
  EXPECT_EQ(text_of(gamma_bits_of(4)), "00100");
  EXPECT_EQ(text_of(gamma_bits_of(17)), "000010001");
  EXPECT_EQ(text_of(gamma_bits_of(65536)), std::string(16, '0') + "1" + std::string(16, '0'));
}

TEST(Elias, OmegaIsTheStringOfThePaper) {
  EXPECT_EQ(text_of(omega_bits_of(1)), "0");
  EXPECT_EQ(text_of(omega_bits_of(2)), "100");
  EXPECT_EQ(text_of(omega_bits_of(3)), "110");
  EXPECT_EQ(text_of(omega_bits_of(4)), "101000");
  EXPECT_EQ(text_of(omega_bits_of(7)), "101110");
  EXPECT_EQ(text_of(omega_bits_of(8)), "1110000");
  EXPECT_EQ(text_of(omega_bits_of(15)), "1111110");
  EXPECT_EQ(text_of(omega_bits_of(16)), "10100100000");
  EXPECT_EQ(text_of(omega_bits_of(100)), "1011011001000");
  EXPECT_EQ(text_of(omega_bits_of(1000)), "11100111111010000");
  EXPECT_EQ(text_of(omega_bits_of(65536)), "10100100001" + std::string(17, '0'));
}

std::vector<std::byte> stream_of(const std::string& bits) {
  std::vector<std::byte> bytes((bits.size() + 7) / 8);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (bits[i] == '1') bytes[i / 8] |= std::byte{1} << i % 8;
  }
  return bytes;
}

TEST(Elias, EveryNumberIsReadBack) {
  for (std::uint32_t number = 1; number < 1U << 17; number += 1 + number / 300) {
    const std::string bits = text_of(gamma_bits_of(number)) + text_of(omega_bits_of(number)) + "1";
    const std::vector<std::byte> bytes = stream_of(bits);
    BitReader reader(bytes.data(), bytes.size());
    ASSERT_EQ(read_gamma(reader), number);
    ASSERT_EQ(read_omega(reader), number);
    ASSERT_EQ(reader.get(1), 1U) << number;
    ASSERT_FALSE(reader.exhausted());
  }
}

TEST(Elias, NumbersBeyondTheirRangeAndEndsAreSeen) {
  for (const std::string& bits : {std::string(17, '0') + std::string(18, '1'), std::string(64, '0')}) {
    const std::vector<std::byte> bytes = stream_of(bits);
    BitReader reader(bytes.data(), bytes.size());
    EXPECT_EQ(read_gamma(reader), 0U);
    EXPECT_FALSE(reader.exhausted());
  }
  // A group of 18 bits; and only ones, which ask for ever larger groups.
  for (const std::string& bits : {"10100100011" + std::string(40, '0'), std::string(64, '1')}) {
    const std::vector<std::byte> bytes = stream_of(bits);
    BitReader reader(bytes.data(), bytes.size());
    EXPECT_EQ(read_omega(reader), 0U);
    EXPECT_FALSE(reader.exhausted());
  }
  for (const std::string bits : {"00000000", "00001000", "00000001"}) {
    const std::vector<std::byte> bytes = stream_of(bits);
    BitReader reader(bytes.data(), bytes.size());
    read_gamma(reader);
    EXPECT_TRUE(reader.exhausted()) << bits;
  }
  const std::vector<std::byte> ones = stream_of("11111111");
  BitReader reader(ones.data(), ones.size());
  read_omega(reader);
  EXPECT_TRUE(reader.exhausted());
}

}  // namespace
}  // namespace deltawire::elias_test
