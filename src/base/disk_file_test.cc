#include "base/disk_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/temporary_folder_testing.h"

namespace deltawire {
namespace {

class DiskFiles : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }
  std::size_t names() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_.path()), {}));
  }
  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

  testing::TemporaryFolder folder_;
};

TEST_F(DiskFiles, ANewFileTakesItsPlaceWholeAndWithUsualPermissions) {
  std::ofstream(path("a")) << "old";
  const mode_t mask = umask(022);
  auto file = NewFile::create(path("a"));
  umask(mask);
  ASSERT_TRUE(file);
  ASSERT_TRUE(write_all(file->descriptor(), bytes_of("new")));
  EXPECT_EQ(text_of(path("a")), "old");
  EXPECT_EQ(names(), 2U);
  ASSERT_TRUE(file->flush());
  ASSERT_TRUE(file->put_in_place());
  EXPECT_EQ(text_of(path("a")), "new");
  EXPECT_EQ(names(), 1U);
  EXPECT_EQ(file->unfinished(), "");
  struct stat info{};
  ASSERT_EQ(stat(path("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644U);
  // It can still be written and read.
  ASSERT_TRUE(write_at(file->descriptor(), bytes_of("N"), 0));
  std::vector<std::byte> got(5);
  const auto count = read_at(file->descriptor(), got, 1);
  ASSERT_TRUE(count);
  EXPECT_EQ(*count, 2U);
  EXPECT_EQ(text_of(path("a")), "New");
}

TEST_F(DiskFiles, WithoutAPlaceNoTraceRemains) {
  std::ofstream(path("a")) << "old";
  {
    auto file = NewFile::create(path("a"));
    ASSERT_TRUE(file);
    const NewFile moved = *std::move(file);
    EXPECT_EQ(names(), 2U);
  }
  EXPECT_EQ(names(), 1U);
  EXPECT_EQ(text_of(path("a")), "old");
}

TEST_F(DiskFiles, RefusalsNameThePath) {
  const auto nowhere = NewFile::create(path("no/a"));
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().message, path("no/a") + ": its folder does not exist; create it first");
  EXPECT_EQ(NewFile::create("").error().message, "the new file's name is empty; give it one");
  std::filesystem::create_directory(path("b"));
  auto file = NewFile::create(path("b"));
  ASSERT_TRUE(file);
  const Status moved = file->put_in_place();
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().message, path("b") + ": cannot be put in place: Is a directory");
}

// The kernel's own file systems flush no folders, as some over a network.
TEST_F(DiskFiles, AFolderThatCannotBeFlushedIsNoError) {
  const Descriptor proc(open("/proc", O_RDONLY | O_DIRECTORY));
  ASSERT_NE(fsync(proc.get()), 0);
  EXPECT_TRUE(flush_folder("/proc"));
  EXPECT_TRUE(flush_folder(folder_.path()));
  const Status nowhere = flush_folder(path("no"));
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().message,
            path("no") + ": cannot be flushed to the disk: No such file or directory");
}

TEST_F(DiskFiles, AnUnnamedFileIsInTmpdirAndHasNoName) {
  ASSERT_EQ(setenv("TMPDIR", folder_.path().c_str(), 1), 0);
  const auto file = make_unnamed_file();
  EXPECT_TRUE(file);
  EXPECT_EQ(names(), 0U);
  ASSERT_EQ(setenv("TMPDIR", path("no").c_str(), 1), 0);
  const auto nowhere = make_unnamed_file();
  unsetenv("TMPDIR");
  ASSERT_FALSE(nowhere);
  EXPECT_NE(nowhere.error().message.find("TMPDIR"), std::string::npos);
}

TEST(DiskFile, AFullDiskIsAnError) {
  const Descriptor full(open("/dev/full", O_RDWR));
  const std::string text = "x";
  const Status written = write_all(full.get(), std::as_bytes(std::span(text)));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
  EXPECT_EQ(written.error().message, "cannot be written: No space left on device");
}

}  // namespace
}  // namespace deltawire
