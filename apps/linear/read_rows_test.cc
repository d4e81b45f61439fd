#include "linear/read_rows.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "base/temporary_folder_testing.h"

namespace deltawire::linear {
namespace {

class ReadRows : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

  testing::TemporaryFolder folder_;
};

// Row i has the label 1 and the value i; lines of different lengths.
std::string rows_text(int rows) {
  std::string text;
  for (int i = 0; i < rows; ++i) {
    text += "1 1:" + std::to_string(i) + (i % 3 == 0 ? " 100000:1\n" : "\n");
  }
  return text;
}

Result<std::multiset<float>> values_of_all(const std::vector<std::string>& patterns, int world) {
  const auto files = find_data_files(patterns);
  if (!files) return forward_error(files);
  std::multiset<float> values;
  for (int rank = 0; rank < world; ++rank) {
    const auto read = read_rows(*files, {rank, world}, {}, [&](RowSink& sink, bool) -> Status {
      const RowBlock& rows = sink.training;
      for (std::size_t row = 0; row < rows.rows(); ++row) values.insert(rows.values[rows.first_of(row)]);
      sink.training.clear();
      return {};
    });
    if (!read) return forward_error(read);
  }
  return values;
}

std::multiset<float> numbers_to(int count) {
  std::multiset<float> numbers;
  for (int i = 0; i < count; ++i) numbers.insert(static_cast<float>(i));
  return numbers;
}

TEST_F(ReadRows, EachRowIsOneRanks) {
  const std::string file = write("rows", rows_text(1000));
  for (const int world : {1, 2, 3, 7, 64}) {
    const auto values = values_of_all({file}, world);
    ASSERT_TRUE(values) << values.error().message;
    EXPECT_EQ(*values, numbers_to(1000)) << world;
  }
  // More ranks than bytes.
  EXPECT_EQ(*values_of_all({write("short", "1 1:0\n1 1:1")}, 20), numbers_to(2));
}

TEST_F(ReadRows, LongFilesAreReadInSlices) {
  const std::string file = write("rows", rows_text(300000));
  ASSERT_GT(std::filesystem::file_size(file), std::size_t{3} << 20);
  for (const int world : {1, 2, 5}) EXPECT_EQ(*values_of_all({file}, world), numbers_to(300000)) << world;
}

TEST_F(ReadRows, FilesOfAPatternGoToRanks) {
  for (int i = 0; i < 5; ++i) write("part-000" + std::to_string(i), "1 1:" + std::to_string(i) + "\n");
  EXPECT_EQ(*values_of_all({path("part-*")}, 2), numbers_to(5));
  EXPECT_FALSE(values_of_all({path("other-*")}, 1));
}

TEST_F(ReadRows, ErrorsNameFileLineAndColumnInEveryRange) {
  std::string text = rows_text(1000);
  text += "1 1:x\n" + rows_text(10);
  const std::string file = write("rows", text);
  for (const int world : {1, 3}) {
    const auto values = values_of_all({file}, world);
    ASSERT_FALSE(values);
    EXPECT_EQ(values.error().message, file + ":1001:5: value \"x\" is not a number");
  }
}

TEST_F(ReadRows, RefusesFilesThatAreNotData) {
  EXPECT_EQ(values_of_all({path("none")}, 1).error().message,
            path("none") + ": no such file; check the path");
  EXPECT_NE(values_of_all({folder_.path()}, 1).error().message.find("is a folder"), std::string::npos);
  using namespace std::string_literals;
  for (const std::string& front : {"\x1F\x8B\x08"s, "\xFD\x37zXZ\0"s, "BZh9"s, "\x28\xB5\x2F\xFD"s}) {
    EXPECT_EQ(values_of_all({write("packed", front)}, 1).error().message,
              path("packed") + ": is packed; unpack it first (gzip -d, xz -d, bzip2 -d, zstd -d)");
  }
  EXPECT_TRUE(values_of_all({write("text", "1 1:0\n")}, 1));
}

TEST_F(ReadRows, RowsBeyondMemoryWaitInAFile) {
  DataSettings settings;
  settings.data = {write("rows", rows_text(400000))};
  settings.parse.held_out = 0.3;
  const auto go_on = [] { return false; };
  auto in_memory = load_data(settings, {}, go_on);
  ASSERT_TRUE(in_memory);
  settings.memory_bytes = 0;
  auto in_file = load_data(settings, {}, go_on);
  ASSERT_TRUE(in_file) << in_file.error().message;
  ASSERT_GT(in_memory->entries().size(), 2U);
  EXPECT_EQ(in_memory->totals().rows[0] + in_memory->totals().rows[1], 400000U);
  EXPECT_EQ(in_file->totals().keys_end, 100001U);
  ASSERT_EQ(in_file->entries().size(), in_memory->entries().size());
  for (std::size_t i = 0; i < in_file->entries().size(); ++i) {
    const auto expected = in_memory->load(i);
    const auto found = in_file->load(i);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ((*found)->keys, (*expected)->keys);
    EXPECT_EQ((*found)->values, (*expected)->values);
    EXPECT_EQ((*found)->ends, (*expected)->ends);
    EXPECT_EQ((*found)->labels, (*expected)->labels);
  }
}

}  // namespace
}  // namespace deltawire::linear
