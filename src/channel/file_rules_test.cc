// docs/reference/format.md, section 6, rule by rule: each is broken behind a good checksum, with the error
// that the page names; and next to each limit stands what is still allowed.
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "deltawire/file.h"

namespace deltawire::file_rules_test {
namespace {

using File = std::vector<std::byte>;
using Change = std::function<void(File&)>;

constexpr std::size_t kHeader = 32 + 2 * 8 + 4 + 4;  // two dimensions, the spec "fp32", the checksum

File small_file() {
  std::vector<float> values(6, 1.0F);
  const std::array<std::uint64_t, 2> shape{2, 3};
  return *encode_file({values.data(), values.size(), DType::kF32}, shape, "fp32");
}

void repair(File& file) {
  if (file.size() < kHeader) return;
  store_le<std::uint32_t>(file.data() + kHeader - 4, crc32c(Bytes(file).first(kHeader - 4)));
}

Change u8(std::size_t at, unsigned value) {
  return [=](File& file) { file[at] = static_cast<std::byte>(value); };
}

Change u16(std::size_t at, unsigned value) {
  return [=](File& file) { store_le(file.data() + at, static_cast<std::uint16_t>(value)); };
}

Change u32(std::size_t at, std::uint32_t value) {
  return [=](File& file) { store_le(file.data() + at, value); };
}

Change shape(std::uint64_t rows, std::uint64_t columns) {
  return [=](File& file) {
    store_le(file.data() + 32, rows);
    store_le(file.data() + 40, columns);
  };
}

Change cut_to(std::size_t bytes) {
  return [=](File& file) { file.resize(bytes); };
}

struct Rule {
  std::string name;
  Change change;
  std::optional<ErrorCode> error;  // none: the header is good
  Change after = [](File&) {};     // with the checksum as it is
};

std::vector<Rule> rules() {
  const Change nothing = [](File&) {};
  return {
      {"as it was", nothing, std::nullopt},
      {"31 bytes", nothing, ErrorCode::kTruncated, cut_to(31)},
      {"the magic's last byte", u8(7, 0), ErrorCode::kCorrupt},
      {"version 0", u16(8, 0), ErrorCode::kUnsupportedVersion},
      {"version 2", u16(8, 2), ErrorCode::kUnsupportedVersion},
      {"version 257", u16(8, 257), ErrorCode::kUnsupportedVersion},
      {"9 dimensions", u8(11, 9), ErrorCode::kLimit},
      {"8 dimensions that aren't there", u8(11, 8), ErrorCode::kCorrupt},
      {"1,025 bytes of spec", u32(24, 1025), ErrorCode::kLimit},
      {"1,024 bytes of spec that aren't there", u32(24, 1024), ErrorCode::kCorrupt},
      {"header_bytes 1 less", u32(12, kHeader - 1), ErrorCode::kCorrupt},
      {"header_bytes 1 more", u32(12, kHeader + 1), ErrorCode::kCorrupt},
      {"cut in the header", nothing, ErrorCode::kTruncated, cut_to(kHeader - 1)},
      {"the header alone", nothing, std::nullopt, cut_to(kHeader)},
      {"the checksum", nothing, ErrorCode::kCorrupt, u8(kHeader - 1, 0)},
      {"dtype 0", u8(10, 0), ErrorCode::kCorrupt},
      {"dtype 3", u8(10, 3), std::nullopt},
      {"dtype 4", u8(10, 4), ErrorCode::kCorrupt},
      {"parts of all but one of its elements", u32(28, 5), std::nullopt},
      {"parts of as many elements as it has", u32(28, 6), ErrorCode::kCorrupt},
      {"any min_elements", u32(20, UINT32_MAX), std::nullopt},
      {"2^32 - 1 elements", shape(UINT32_MAX, 1), std::nullopt},
      {"2^32 elements", shape(65536, 65536), ErrorCode::kLimit},
      {"2^64 elements", shape(std::uint64_t{1} << 32, std::uint64_t{1} << 32), ErrorCode::kLimit},
      {"2^32 elements by none", shape(std::uint64_t{1} << 32, 0), ErrorCode::kLimit},
      {"no elements", shape(0, UINT32_MAX), std::nullopt},
  };
}

TEST(FileRules, Header) {
  for (const Rule& rule : rules()) {
    SCOPED_TRACE(rule.name);
    File file = small_file();
    rule.change(file);
    repair(file);
    rule.after(file);
    const auto header = read_file_header(file);
    ASSERT_EQ(header.has_value(), !rule.error) << (header ? "" : header.error().message);
    if (header) continue;
    EXPECT_EQ(error_code_name(header.error().code), error_code_name(*rule.error)) << header.error().message;
  }
}

// With the checksum where the longer header would have it.
TEST(FileRules, AHeaderIsNoLongerThanItsContent) {
  File file = small_file();
  file.insert(file.begin() + kHeader - 4, std::byte{0});
  store_le<std::uint32_t>(file.data() + 12, kHeader + 1);
  store_le<std::uint32_t>(file.data() + kHeader - 3, crc32c(Bytes(file).first(kHeader - 3)));
  const auto header = read_file_header(file);
  ASSERT_FALSE(header);
  EXPECT_NE(header.error().message.find("length"), std::string::npos) << header.error().message;
}

TEST(FileRules, TheOutputMustFit) {
  const File file = small_file();
  std::vector<float> out(7);
  for (const std::uint64_t count : {0U, 5U, 7U}) {
    EXPECT_EQ(decode_file(file, {out.data(), count, DType::kF32}).error().code, ErrorCode::kMismatch)
        << count;
  }
  EXPECT_EQ(decode_file(file, {out.data(), 6, DType::kBF16}).error().code, ErrorCode::kMismatch);
  EXPECT_TRUE(decode_file(file, {out.data(), 6, DType::kF32}));
}

TEST(FileRules, WhatIsEncodedKeepsThemToo) {
  float one = 1;
  const std::vector<std::uint64_t> eight(8, 1);
  const std::vector<std::uint64_t> nine(9, 1);
  EXPECT_TRUE(encode_file({&one, 1, DType::kF32}, eight, "fp32"));
  EXPECT_EQ(encode_file({&one, 1, DType::kF32}, nine, "fp32").error().code, ErrorCode::kInvalidArgument);
  const std::array<std::uint64_t, 2> many{65536, 65536};
  EXPECT_EQ(encode_file({&one, 1, DType::kF32}, many, "fp32").error().code, ErrorCode::kLimit);
}

}  // namespace
}  // namespace deltawire::file_rules_test
