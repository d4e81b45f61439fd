#include "deltawire/file.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/random.h"
#include "base/refusal_testing.h"

namespace deltawire::file_test {
namespace {

std::vector<float> normal(std::size_t count) {
  CounterRng rng(11);
  std::vector<float> values(count);
  for (float& value : values) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += rng.next_uniform();
    value = static_cast<float>(sum);
  }
  return values;
}

TEST(File, RoundTrip) {
  std::vector<float> values = normal(6 * 7 * 8);
  const std::array<std::uint64_t, 3> shape{6, 7, 8};
  const auto file = encode_file({values.data(), values.size(), DType::kF32}, shape, "fp32");
  ASSERT_TRUE(file);
  const auto header = read_file_header(*file);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->codec_spec, "fp32");
  EXPECT_EQ(header->shape, (std::vector<std::uint64_t>{6, 7, 8}));
  std::vector<float> out(values.size());
  ASSERT_TRUE(decode_file(*file, {out.data(), out.size(), DType::kF32}));
  EXPECT_EQ(values, out);
}

TEST(File, ScalarAndEmptyShapes) {
  float one = 3.5F;
  const auto scalar = encode_file({&one, 1, DType::kF32}, {}, "3lc", Policy{0});
  ASSERT_TRUE(scalar);
  float back = 0;
  ASSERT_TRUE(decode_file(*scalar, {&back, 1, DType::kF32}));
  EXPECT_EQ(back, 3.5F);
  const std::array<std::uint64_t, 2> none{0, 5};
  const auto empty = encode_file({nullptr, 0, DType::kF32}, none, "3lc");
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->size(), read_file_header(*empty)->header_bytes);
  EXPECT_TRUE(decode_file(*empty, {nullptr, 0, DType::kF32}));
}

TEST(File, WrongShapeIsRefused) {
  float one = 1;
  const std::array<std::uint64_t, 1> shape{2};
  EXPECT_EQ(encode_file({&one, 1, DType::kF32}, shape, "fp32").error().code, ErrorCode::kInvalidArgument);
  const std::array<std::uint64_t, 3> wrap{std::uint64_t{1} << 32, std::uint64_t{1} << 32, 1};
  EXPECT_EQ(encode_file({&one, 0, DType::kF32}, wrap, "fp32").error().code, ErrorCode::kLimit);
}

TEST(File, KeysAreRefused) {
  float one = 1;
  std::uint32_t key = 3;
  const std::array<std::uint64_t, 1> shape{1};
  testing::expect_refused(encode_file({&one, 1, DType::kF32, &key, 10}, shape, "fastsgd"),
                          ErrorCode::kInvalidArgument, "keys");
}

TEST(File, EveryBitFlipAndTruncationIsDetected) {
  std::vector<float> values = normal(300);
  const std::array<std::uint64_t, 1> shape{300};
  const auto file = *encode_file({values.data(), values.size(), DType::kF32}, shape, "3lc:s=1.5");
  std::vector<float> out(values.size());
  const TensorSlot slot{out.data(), out.size(), DType::kF32};
  ASSERT_TRUE(decode_file(file, slot));
  for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
    auto bad = file;
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_FALSE(decode_file(bad, slot)) << bit;
  }
  for (std::size_t bytes = 0; bytes < file.size(); ++bytes) {
    EXPECT_FALSE(decode_file(Bytes(file).first(bytes), slot)) << bytes;
  }
}

TEST(File, AZeroDimensionDoesNotExcuseTheOthers) {
  const std::uint64_t huge = std::uint64_t{1} << 40;
  for (const auto& shape : {std::array<std::uint64_t, 2>{huge, 0}, std::array<std::uint64_t, 2>{0, huge}}) {
    EXPECT_EQ(encode_file({nullptr, 0, DType::kF32}, shape, "fp32").error().code, ErrorCode::kLimit);
  }
}

TEST(File, OnlyTheCanonicalSpecIsAccepted) {
  float one = 1;
  auto file = *encode_file({&one, 1, DType::kF32}, {}, "3lc");
  const std::string other = "3lc:mode=auto,s=1,runs=on";
  const FileHeader header = *read_file_header(file);
  ASSERT_EQ(header.codec_spec.size(), other.size());
  std::memcpy(file.data() + header.header_bytes - 4 - other.size(), other.data(), other.size());
  store_le<std::uint32_t>(file.data() + header.header_bytes - 4,
                          crc32c(Bytes(file).first(header.header_bytes - 4)));
  testing::expect_refused(decode_file(file, {&one, 1, DType::kF32}), ErrorCode::kCorrupt, "canonical");
  const auto in_parts = FileReader::open([rest = Bytes(file)](MutBytes wanted) mutable {
    const std::size_t count = std::min(wanted.size(), rest.size());
    std::memcpy(wanted.data(), rest.data(), count);
    rest = rest.subspan(count);
    return Result<std::size_t>(count);
  });
  ASSERT_FALSE(in_parts);
  EXPECT_NE(in_parts.error().message.find("canonical"), std::string::npos);
}

TEST(File, ASpecThatIsNoTextIsCorrupt) {
  float one = 1;
  const auto file = *encode_file({&one, 1, DType::kF32}, {}, "fp32");
  const std::size_t end = read_file_header(file)->header_bytes;
  for (const int byte : {0x00, 0x1F, 0x20, 0x7E, 0x7F, 0x80, 0xFF}) {
    auto changed = file;
    changed[end - 5] = static_cast<std::byte>(byte);  // the spec's last
    store_le<std::uint32_t>(changed.data() + end - 4, crc32c(Bytes(changed).first(end - 4)));
    const bool printable = byte == 0x20 || byte == 0x7E;
    const auto header = read_file_header(changed);
    ASSERT_EQ(header.has_value(), printable) << byte;
    if (!printable) {
      EXPECT_EQ(header.error().code, ErrorCode::kCorrupt);
    }
  }
}

TEST(File, AnotherFormatIsNamed) {
  float one = 1;
  auto file = *encode_file({&one, 1, DType::kF32}, {}, "fp32");
  file[8] = std::byte{9};
  const auto newer = read_file_header(file);
  testing::expect_refused(newer, ErrorCode::kUnsupportedVersion);
  EXPECT_EQ(newer.error().message,
            "the file: format 9, but this build reads format 1; use a newer version of deltawire");
  file[8] = std::byte{0};
  testing::expect_refused(read_file_header(file), ErrorCode::kUnsupportedVersion,
                          "use the version of deltawire that wrote it");
}

}  // namespace
}  // namespace deltawire::file_test
