// Files that are cut into parts, and coded part by part.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "deltawire/channel.h"
#include "deltawire/file.h"

namespace deltawire::file_parts_test {
namespace {

std::vector<float> waves(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>((i * 7919) % 1009) - 504.0F;
  return values;
}

FileHeader header_of(std::string spec, std::vector<std::uint64_t> shape, std::uint64_t part_elements) {
  FileHeader header;
  header.codec_spec = std::move(spec);
  header.shape = std::move(shape);
  header.part_elements = part_elements;
  header.policy.min_elements = 0;
  return header;
}

std::vector<std::byte> encode_parts(const FileHeader& header, const std::vector<float>& values) {
  auto encoder = FileEncoder::make(header);
  EXPECT_TRUE(encoder);
  std::vector<std::byte> file(encoder->header().begin(), encoder->header().end());
  for (std::size_t first = 0; encoder->due() > 0;) {
    const TensorView part{values.data() + first, encoder->due(), DType::kF32};
    const auto pieces = encoder->encode(part);
    EXPECT_TRUE(pieces) << pieces.error().message;
    if (!pieces) return {};
    for (const Bytes piece : *pieces) file.insert(file.end(), piece.begin(), piece.end());
    first += part.count;
  }
  return file;
}

ReadBytes reading(Bytes bytes) {
  return [rest = bytes](MutBytes wanted) mutable -> Result<std::size_t> {
    const std::size_t count = std::min(wanted.size(), rest.size());
    std::memcpy(wanted.data(), rest.data(), count);
    rest = rest.subspan(count);
    return count;
  };
}

Result<std::vector<float>> read_parts(Bytes file) {
  auto reader = FileReader::open(reading(file));
  if (!reader) return forward_error(reader);
  std::vector<float> values;
  while (reader->due() > 0) {
    const std::size_t before = values.size();
    values.resize(before + reader->due());
    const TensorSlot slot{values.data() + before, reader->due(), DType::kF32};
    if (Status read = reader->read(slot); !read) return forward_error(read);
  }
  return values;
}

TEST(FileParts, EachPartIsCodedAlone) {
  for (const char* spec : {"3lc:s=1.5", "sbc:p=10%", "int8", "fp32", "gcomp", "onebit:means=column"}) {
    const std::vector<float> values = waves(1000);
    const std::vector<std::byte> file = encode_parts(header_of(spec, {10, 100}, 300), values);
    std::vector<float> expected(1000);
    for (std::uint64_t first = 0; first < 1000; first += 300) {
      const std::uint64_t count = std::min<std::uint64_t>(300, 1000 - first);
      const auto alone =
          encode_file({values.data() + first, count, DType::kF32}, std::vector{count}, spec, Policy{0});
      ASSERT_TRUE(decode_file(*alone, {expected.data() + first, count, DType::kF32}));
    }
    EXPECT_EQ(*read_parts(file), expected) << spec;
    std::vector<float> whole(1000);
    ASSERT_TRUE(decode_file(file, {whole.data(), 1000, DType::kF32}));
    EXPECT_EQ(whole, expected) << spec;
  }
}

TEST(FileParts, TheWholeFileIsWrittenWhereTheCallerWants) {
  const std::vector<float> values = waves(1000);
  for (const char* spec : {"3lc", "sbc:p=10%", "gcomp", "zlib", "qsgd"}) {
    const FileHeader header = header_of(spec, {1000}, 300);
    const TensorView tensor{values.data(), 1000, DType::kF32};
    auto encoder = *FileEncoder::make(header);
    std::vector<std::byte> file(encoder.bound());
    EXPECT_EQ(
        FileEncoder::make(header)->encode_all(tensor, MutBytes(file).first(file.size() - 1)).error().code,
        ErrorCode::kOutputTooSmall);
    EXPECT_EQ(FileEncoder::make(header)->encode_all({values.data(), 999, DType::kF32}, file).error().code,
              ErrorCode::kInvalidArgument);
    file.resize(*encoder.encode_all(tensor, file));
    EXPECT_EQ(file, encode_parts(header, values)) << spec;
    EXPECT_EQ(encoder.due(), 0u);
  }
}

TEST(FileParts, ATensorOfOnePartHasTheBytesOfEncodeFile) {
  const std::vector<float> values = waves(500);
  const auto whole =
      encode_file({values.data(), 500, DType::kF32}, std::vector<std::uint64_t>{5, 100}, "3lc", Policy{0});
  EXPECT_EQ(encode_parts(header_of("3lc", {5, 100}, 500), values), *whole);
  EXPECT_EQ(encode_parts(header_of("3lc", {5, 100}, 0), values), *whole);
  EXPECT_NE(encode_parts(header_of("3lc", {5, 100}, 499), values), *whole);
  std::vector<float> decoded(500);
  ASSERT_TRUE(decode_file(*whole, {decoded.data(), 500, DType::kF32}));
  EXPECT_EQ(*read_parts(*whole), decoded);
}

TEST(FileParts, AFileIsCutByItselfWhereItIsLong) {
  const std::vector<float> zeros(kFilePartElements + 3);
  const auto file =
      encode_file({zeros.data(), zeros.size(), DType::kF32}, std::vector<std::uint64_t>{zeros.size()}, "3lc");
  ASSERT_TRUE(file);
  EXPECT_EQ(read_file_header(*file)->part_elements, kFilePartElements);
  EXPECT_EQ(read_parts(*file)->size(), zeros.size());
  const std::vector<float> fits(kFilePartElements);
  const auto one =
      encode_file({fits.data(), fits.size(), DType::kF32}, std::vector<std::uint64_t>{fits.size()}, "3lc");
  EXPECT_EQ(read_file_header(*one)->part_elements, 0U);
}

TEST(FileParts, SmallLastPartIsRaw) {
  FileHeader header = header_of("3lc", {1010}, 1000);
  header.policy.min_elements = 256;
  const std::vector<float> values = waves(1010);
  const auto decoded = *read_parts(encode_parts(header, values));
  EXPECT_TRUE(std::equal(values.begin() + 1000, values.end(), decoded.begin() + 1000));
  EXPECT_NE(values[1], decoded[1]);
}

TEST(FileParts, AnotherFilesPartIsNoneOfThisOne) {
  const std::vector<float> values = waves(900);
  const FileHeader header = header_of("fp32", {900}, 300);
  const std::vector<std::byte> file = encode_parts(header, values);
  const std::size_t begin = read_file_header(file)->header_bytes;
  const std::size_t part = (file.size() - begin) / 3;
  auto swapped = file;  // the first two parts
  std::swap_ranges(swapped.begin() + static_cast<std::ptrdiff_t>(begin),
                   swapped.begin() + static_cast<std::ptrdiff_t>(begin + part),
                   swapped.begin() + static_cast<std::ptrdiff_t>(begin + part));
  EXPECT_EQ(read_parts(swapped).error().code, ErrorCode::kMismatch);
}

TEST(FileParts, EveryBitFlipAndTruncationIsDetected) {
  const std::vector<float> values = waves(90);
  const std::vector<std::byte> file = encode_parts(header_of("3lc", {90}, 40), values);
  ASSERT_TRUE(read_parts(file));
  for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
    auto bad = file;
    bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(read_parts(bad)) << bit;
  }
  for (std::size_t bytes = 0; bytes < file.size(); ++bytes) {
    EXPECT_FALSE(read_parts(Bytes(file).first(bytes))) << bytes;
  }
  auto longer = file;
  longer.push_back(std::byte{0});
  EXPECT_EQ(read_parts(longer).error().code, ErrorCode::kCorrupt);
  std::vector<std::byte> empty = encode_parts(header_of("3lc", {0}, 0), {});
  ASSERT_TRUE(read_parts(empty));
  empty.push_back(std::byte{0});
  EXPECT_EQ(read_parts(empty).error().code, ErrorCode::kCorrupt);
}

TEST(FileParts, PartsOfAllOrMoreElementsAreCorrupt) {
  std::vector<std::byte> file = encode_parts(header_of("fp32", {90}, 40), waves(90));
  const std::size_t end = read_file_header(file)->header_bytes;
  for (const std::uint32_t elements : {1U, 89U, 90U, 91U, 0xFFFFFFFFU}) {
    store_le<std::uint32_t>(file.data() + 28, elements);
    store_le<std::uint32_t>(file.data() + end - 4, crc32c(Bytes(file).first(end - 4)));
    const auto header = read_file_header(file);
    EXPECT_EQ(header.has_value(), elements < 90) << elements;
    if (!header) {
      EXPECT_EQ(header.error().code, ErrorCode::kCorrupt);
    }
  }
}

TEST(FileParts, AnErrorNamesThePartAndEndsTheFile) {
  std::vector<float> values = waves(90);
  values[41] = std::numeric_limits<float>::infinity();
  auto encoder = FileEncoder::make(header_of("3lc", {90}, 40));
  ASSERT_TRUE(encoder->encode({values.data(), 40, DType::kF32}));
  EXPECT_EQ(encoder->encode({values.data(), 39, DType::kF32}).error().code, ErrorCode::kInvalidArgument);
  const auto failed = encoder->encode({values.data() + 40, 40, DType::kF32});
  EXPECT_EQ(failed.error().code, ErrorCode::kNotFinite);
  EXPECT_NE(failed.error().message.find("begins at element 40"), std::string::npos) << failed.error().message;
  EXPECT_EQ(encoder->encode({values.data(), 40, DType::kF32}).error().code, ErrorCode::kState);
}

TEST(FileParts, SixteenBitsStaySixteen) {
  const std::vector<std::uint16_t> values(600, 0x3E00);  // 1.5
  FileHeader header = header_of("fp32", {600}, 400);
  header.dtype = DType::kF16;
  auto encoder = FileEncoder::make(header);
  std::vector<std::byte> file(encoder->header().begin(), encoder->header().end());
  for (const std::size_t first : std::vector<std::size_t>{0, 400}) {
    const auto pieces = encoder->encode({values.data() + first, encoder->due(), DType::kF16});
    ASSERT_TRUE(pieces);
    for (const Bytes piece : *pieces) file.insert(file.end(), piece.begin(), piece.end());
  }
  std::vector<std::uint16_t> out(600);
  ASSERT_TRUE(decode_file(file, {out.data(), 600, DType::kF16}));
  EXPECT_EQ(out, values);
}

}  // namespace
}  // namespace deltawire::file_parts_test
