// A snapshot is there whole, or those before it are: wherever its writer stops.
#include "deltawire/snapshot.h"

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/refusal_testing.h"
#include "base/temporary_folder_testing.h"

namespace {

int g_flushes = 0;
int g_dies_at = -1;

}  // namespace

// In the place of the C library's: the process is gone in the midst of one of them.
extern "C" int fsync(int descriptor) {
  if (g_flushes++ == g_dies_at) _exit(7);
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace deltawire::snapshot_test {
namespace {

namespace fs = std::filesystem;
using State = std::vector<std::byte>;
using Steps = std::vector<std::uint64_t>;

class Snapshots : public ::testing::Test {
 protected:
  std::string path(std::uint64_t step) const {
    return folder_.path("rank-1.step-" + std::to_string(step) + ".snapshot");
  }
  Steps found() const {
    const auto steps = find_snapshots(place_);
    EXPECT_TRUE(steps) << steps.error().message;
    return steps.value_or(Steps{});
  }
  void write(std::uint64_t step, const State& state) const {
    const Status written = write_snapshot(place_, step, state);
    ASSERT_TRUE(written) << written.error().message;
  }
  std::size_t file_count() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(place_.folder), fs::directory_iterator{}));
  }

  const testing::TemporaryFolder folder_;
  const SnapshotPlace place_{.folder = folder_.path(), .rank = 1, .settings = "push=3lc", .kept = 2};
  const State first_ = State(40, std::byte{1});
  const State second_ = State(60, std::byte{2});
};

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST_F(Snapshots, ComeBackAndTheOldestGo) {
  EXPECT_EQ(found(), Steps{});
  write(10, first_);
  write(20, second_);
  EXPECT_EQ(*read_snapshot(place_, 10), first_);
  EXPECT_EQ(*read_snapshot(place_, 20), second_);
  write(100, {});
  EXPECT_EQ(found(), (Steps{20, 100})) << "two are kept, by number and not by name";
  EXPECT_EQ(*read_snapshot(place_, 100), State{});
  write(100, first_);
  EXPECT_EQ(*read_snapshot(place_, 100), first_) << "written anew";
  ASSERT_TRUE(drop_snapshots_after(place_, 20));
  EXPECT_EQ(found(), Steps{20});
  EXPECT_EQ(read_snapshot(place_, 100).error().code, ErrorCode::kIo);
}

TEST_F(Snapshots, TheOneThatAllServersAreKnownToHaveStays) {
  SnapshotPlace place = place_;
  place.common = 10;
  for (const std::uint64_t step : {5U, 10U, 20U, 30U, 40U, 50U}) {
    ASSERT_TRUE(write_snapshot(place, step, first_));
  }
  EXPECT_EQ(found(), (Steps{10, 40, 50}));
}

TEST_F(Snapshots, OfOtherRanksAreTheirs) {
  SnapshotPlace other = place_;
  other.rank = 11;
  write(10, first_);
  ASSERT_TRUE(write_snapshot(other, 20, second_));
  EXPECT_EQ(found(), Steps{10});
  EXPECT_EQ(*find_snapshots(other), Steps{20});
  ASSERT_TRUE(drop_snapshots_after(place_, 0));
  EXPECT_EQ(*find_snapshots(other), Steps{20});
  fs::rename(folder_.path("rank-11.step-20.snapshot"), path(20));
  EXPECT_EQ(found(), Steps{}) << "its head says whose it is";
}

TEST_F(Snapshots, OfOtherSettingsAreAnError) {
  write(10, first_);
  SnapshotPlace other = place_;
  other.settings = "push=fp32";
  const auto steps = find_snapshots(other);
  testing::expect_refused(steps, ErrorCode::kMismatch, "push=3lc");
  other.folder += "/none";
  EXPECT_EQ(find_snapshots(other).error().code, ErrorCode::kIo);
  EXPECT_EQ(write_snapshot(other, 1, {}).error().code, ErrorCode::kIo);
  other.settings.assign(65537, 'x');
  EXPECT_EQ(write_snapshot(other, 1, {}).error().code, ErrorCode::kLimit);
}

TEST_F(Snapshots, CutAtAnyByteLeaveTheOneBefore) {
  write(10, first_);
  write(20, second_);
  const std::string whole = read_all(path(20));
  ASSERT_GT(whole.size(), second_.size());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    put(path(20), whole.substr(0, bytes));
    ASSERT_EQ(found(), Steps{10}) << bytes << " bytes";
    ASSERT_FALSE(read_snapshot(place_, 20)) << bytes << " bytes";
    std::string changed = whole;
    changed[bytes] = static_cast<char>(changed[bytes] ^ 4);
    put(path(20), changed);
    ASSERT_EQ(found(), Steps{10}) << "byte " << bytes << " changed";
  }
  put(path(20), whole + "x");
  EXPECT_EQ(found(), Steps{10});
  EXPECT_EQ(*read_snapshot(place_, 10), first_);
}

// The file with one byte changed, and a checksum that fits.
std::string changed_at(std::size_t byte, std::string file) {
  file[byte] = static_cast<char>(file[byte] ^ 4);
  const Bytes body = std::as_bytes(std::span(file)).first(file.size() - 4);
  store_le<std::uint32_t>(reinterpret_cast<std::byte*>(file.data()) + body.size(), crc32c(body));
  return file;
}

TEST_F(Snapshots, AreReadAsTheirHeadsSayOrNotAtAll) {
  write(20, second_);
  const std::string whole = read_all(path(20));
  const std::size_t head = whole.size() - second_.size() - 4;
  for (std::size_t byte = 0; byte < whole.size() - 4; ++byte) {
    put(path(20), changed_at(byte, whole));
    EXPECT_EQ(read_snapshot(place_, 20).has_value(), byte >= head) << "byte " << byte;
  }
}

TEST_F(Snapshots, BeginWithTheirMagic) {
  write(20, second_);
  const std::string whole = read_all(path(20));
  for (std::size_t byte = 0; byte < 8; ++byte) {
    put(path(20), changed_at(byte, whole));
    testing::expect_refused(read_snapshot(place_, 20), ErrorCode::kCorrupt, "wrong magic");
  }
}

// The writer is gone at its nth flush. What it had not flushed may be lost: the entry of the folder, and any
// of the bytes next to it.
TEST_F(Snapshots, StoppedAtAnyFlushLeaveTheOneBefore) {
  int flush = 0;
  for (bool is_over = false; !is_over; ++flush) {
    ASSERT_LT(flush, 10);
    fs::remove_all(place_.folder);
    fs::create_directory(place_.folder);
    write(5, first_);
    write(10, first_);
    const pid_t writer = fork();
    if (writer == 0) {
      g_flushes = 0;
      g_dies_at = flush;
      _exit(write_snapshot(place_, 20, second_) ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    is_over = WEXITSTATUS(status) == 0;
    ASSERT_TRUE(is_over || WEXITSTATUS(status) == 7);
    const Steps after = found();
    ASSERT_GE(after.size(), 2U) << "stopped at flush " << flush;
    ASSERT_EQ(*read_snapshot(place_, 10), first_);
    if (flush == 0) {
      EXPECT_EQ(after.back(), 10U) << "nothing takes its place before its bytes are flushed";
    }
    if (after.back() == 20) {
      ASSERT_EQ(*read_snapshot(place_, 20), second_);
    }
    if (flush == 1) {  // the folder's: its new entry may be lost
      ASSERT_EQ(after, (Steps{5, 10, 20})) << "the oldest go when the newest is safe";
      fs::rename(path(20), path(20) + ".aaaaaa");
      ASSERT_EQ(found(), (Steps{5, 10}));
    }
  }
  EXPECT_GE(flush, 4) << "of the file, of the folder, of the folder without the oldest";
}

// As on a full disk, a file can be begun and not ended.
TEST_F(Snapshots, ThatDoNotFitOnTheDiskLeaveThoseBefore) {
  write(10, first_);
  write(20, second_);
  const State large(100000, std::byte{3});
  const pid_t writer = fork();
  if (writer == 0) {
    const rlimit least{4096, 4096};
    (void)::signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &least) != 0) _exit(2);
    const Status written = write_snapshot(place_, 30, large);
    const bool names_file = !written && written.error().message.find(path(30)) != std::string::npos;
    const bool names_cause = !written && written.error().message.find("too large") != std::string::npos;
    _exit(names_file && names_cause && written.error().code == ErrorCode::kIo ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(writer, &status, 0), writer);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(found(), (Steps{10, 20}));
  EXPECT_EQ(file_count(), 2U) << "nothing is left of it";
  write(30, large);
  EXPECT_EQ(found(), (Steps{20, 30}));
}

TEST_F(Snapshots, TidyUpWhatACrashHasLeft) {
  write(10, first_);
  put(path(20) + ".abcdef", "half");
  put(folder_.path("rank-1.step-x.snapshot"), "not ours");
  EXPECT_EQ(found(), Steps{10});
  write(30, second_);
  EXPECT_EQ(found(), (Steps{10, 30}));
  EXPECT_EQ(file_count(), 3U) << "two snapshots, and what is not ours";
}

}  // namespace
}  // namespace deltawire::snapshot_test
