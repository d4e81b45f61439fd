#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include "base/temporary_folder_testing.h"
#include "linear/read_rows.h"
#include "linear/text_source.h"

namespace deltawire::linear::packed_text_test {
namespace {

// Each digit of a value counts: text in which a flip gives another row, seldom none.
std::string some_text() {
  std::string text;
  for (int i = 0; i < 12; ++i) {
    text += std::to_string(i % 2) + " 1:" + std::to_string(i * 7919 % 10007) + ".5 3:" + std::to_string(i);
    text += '\n';
  }
  return text;
}

std::string packed_by_archive(const std::string& text, int (*filter)(archive*), const char* level) {
  std::string out(4096, '\0');
  std::size_t used = 0;
  archive* const to = archive_write_new();
  EXPECT_EQ(filter(to), ARCHIVE_OK);
  EXPECT_EQ(archive_write_set_format_raw(to), ARCHIVE_OK);
  EXPECT_EQ(archive_write_set_filter_option(to, nullptr, "compression-level", level), ARCHIVE_OK);
  EXPECT_EQ(archive_write_set_bytes_in_last_block(to, 1), ARCHIVE_OK);
  EXPECT_EQ(archive_write_open_memory(to, out.data(), out.size(), &used), ARCHIVE_OK);
  archive_entry* const entry = archive_entry_new();
  archive_entry_set_filetype(entry, AE_IFREG);
  EXPECT_EQ(archive_write_header(to, entry), ARCHIVE_OK);
  archive_entry_free(entry);
  EXPECT_EQ(archive_write_data(to, text.data(), text.size()), static_cast<la_ssize_t>(text.size()));
  EXPECT_EQ(archive_write_close(to), ARCHIVE_OK);
  archive_write_free(to);
  return out.substr(0, used);
}

// As the program zstd packs: with a checksum, which ZSTD_compress leaves out. With the content's size, the
// frame says nothing of a window.
std::string zstd_frame(const std::string& text, bool with_size) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, with_size ? 1 : 0);
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

std::string packed_by_zstd(const std::string& text) {
  return zstd_frame(text, true);
}

struct Kind {
  const char* name;
  std::string (*pack)(const std::string& text);
};

std::string gzip_stored(const std::string& text) {
  return packed_by_archive(text, archive_write_add_filter_gzip, "0");
}
std::string gzip(const std::string& text) {
  return packed_by_archive(text, archive_write_add_filter_gzip, "6");
}
std::string xz(const std::string& text) {
  return packed_by_archive(text, archive_write_add_filter_xz, "0");
}
std::string bzip2(const std::string& text) {
  return packed_by_archive(text, archive_write_add_filter_bzip2, "1");
}

class PackedRows : public ::testing::Test {
 protected:
  // All numbers of the rows that a file of these bytes has, in order.
  Result<std::vector<float>> rows_of(const std::string& bytes) const {
    const std::string path = folder_.path("rows");
    std::ofstream(path, std::ios::binary) << bytes;
    const auto files = find_data_files(std::vector{path});
    if (!files) return forward_error(files);
    std::vector<float> numbers;
    const Status read = read_rows(*files, {}, {}, [&](RowSink& sink, bool) -> Status {
      RowBlock& rows = sink.training;
      numbers.insert(numbers.end(), rows.labels.begin(), rows.labels.end());
      numbers.insert(numbers.end(), rows.keys.begin(), rows.keys.end());
      numbers.insert(numbers.end(), rows.values.begin(), rows.values.end());
      rows.clear();
      return {};
    });
    if (!read) return forward_error(read);
    return numbers;
  }

  testing::TemporaryFolder folder_;
};

// pzstd puts such frames, with the size of the next, before each that holds text.
TEST_F(PackedRows, FramesOfZstdWithoutTextAreSkipped) {
  const std::string frame = packed_by_zstd(some_text());
  const auto expected = rows_of(frame);
  ASSERT_TRUE(expected) << expected.error().message;
  for (const char first : {'\x50', '\x5F'}) {
    const std::string skipped = first + std::string("\x2A\x4D\x18\x04\0\0\0size", 11);
    for (const std::string& file : {skipped + frame, skipped + skipped + frame + skipped}) {
      const auto rows = rows_of(file);
      ASSERT_TRUE(rows) << rows.error().message;
      EXPECT_EQ(*rows, *expected);
    }
    EXPECT_EQ(rows_of(skipped + frame + skipped + frame)->size(), 2 * expected->size());
  }
}

TEST_F(PackedRows, AWindowBeyondMemoryIsNamed) {
  std::string frame = zstd_frame(some_text(), false);
  ASSERT_TRUE(rows_of(frame));
  frame[5] = static_cast<char>((28 - 10) << 3);  // 2^28 bytes
  const auto rows = rows_of(frame);
  ASSERT_FALSE(rows);
  EXPECT_NE(rows.error().message.find("a window of more than 128 MiB"), std::string::npos)
      << rows.error().message;
  EXPECT_EQ(rows.error().message.find("copy the file again"), std::string::npos) << rows.error().message;
}

class PackedFiles : public PackedRows, public ::testing::WithParamInterface<Kind> {};

TEST_P(PackedFiles, EachChangedByteIsRefusedOrChangesNoRow) {
  const std::string packed = GetParam().pack(some_text());
  const auto expected = rows_of(packed);
  ASSERT_TRUE(expected) << expected.error().message;
  ASSERT_EQ(expected->size(), 12U * 5U);
  std::size_t refused = 0;
  for (std::size_t at = 0; at < packed.size(); ++at) {
    for (const int bits : {1 << at % 8, 0xFF}) {
      std::string changed = packed;
      changed[at] = static_cast<char>(changed[at] ^ bits);
      const auto rows = rows_of(changed);
      refused += rows ? 0U : 1U;
      if (rows) {
        EXPECT_EQ(*rows, *expected) << "byte " << at << ", bits " << bits;
      }
    }
  }
  EXPECT_GT(2 * refused, 3 * packed.size());
}

TEST_P(PackedFiles, EachCutIsRefused) {
  const std::string packed = GetParam().pack(some_text());
  for (std::size_t length = 1; length < packed.size(); ++length) {
    EXPECT_FALSE(rows_of(packed.substr(0, length))) << length;
  }
}

TEST_P(PackedFiles, ConcatenatedOnesAreReadAndWhatElseFollowsIsRefused) {
  const std::string text = some_text();
  const std::string packed = GetParam().pack(text);
  const auto twice = rows_of(packed + packed);
  ASSERT_TRUE(twice) << twice.error().message;
  EXPECT_EQ(*twice, *rows_of(text + text));
  for (const char* rest : {"x", "garbage", "1 1:1\n"}) {
    for (const std::string& front : {packed, packed + packed}) {
      const auto rows = rows_of(front + rest);
      ASSERT_FALSE(rows) << rest;
      EXPECT_NE(rows.error().message.find("cannot be unpacked: "), std::string::npos) << rows.error().message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, PackedFiles,
                         ::testing::Values(Kind{"gzip_stored", gzip_stored}, Kind{"gzip", gzip},
                                           Kind{"xz", xz}, Kind{"bzip2", bzip2},
                                           Kind{"zstd", packed_by_zstd}),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace deltawire::linear::packed_text_test
