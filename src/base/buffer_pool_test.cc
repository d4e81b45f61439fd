#include "base/buffer_pool.h"

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace deltawire {
namespace {

// What the system's list of this process's memory says of where `at` lies; empty: nothing.
std::string flags_of(const std::byte* at) {
  std::ifstream list("/proc/self/smaps");
  bool is_here = false;
  for (std::string line; std::getline(list, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      const auto address = reinterpret_cast<std::uintptr_t>(at);
      is_here = begin <= address && address < end;
    } else if (is_here && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return {};
}

class BufferPools : public ::testing::Test {
 protected:
  std::uint64_t held() const { return meter_->held(MemoryMeter::Use::kStaging); }

  // A step that has buffers of so many bytes, all at one time.
  void step(const std::vector<std::uint64_t>& sizes) {
    std::vector<BufferPool::Buffer> buffers;
    for (const std::uint64_t bytes : sizes) buffers.push_back(pool_.take(bytes));
    buffers.clear();
    pool_.end_step();
  }

  std::shared_ptr<MemoryMeter> meter_ = std::make_shared<MemoryMeter>();
  BufferPool pool_{meter_, MemoryMeter::Use::kStaging};
};

TEST_F(BufferPools, WhatIsGivenBackServesForUpToAnEighthLess) {
  const std::byte* memory = nullptr;
  {
    const BufferPool::Buffer first = pool_.take(800000);
    memory = first.bytes().data();
    EXPECT_EQ(first.bytes().size(), 800000u);
    EXPECT_EQ(held(), 800000u);
  }
  {
    const BufferPool::Buffer smaller = pool_.take(708000);
    EXPECT_EQ(smaller.bytes().data(), memory);
    EXPECT_EQ(smaller.bytes().size(), 708000u);
    const BufferPool::Buffer other = pool_.take(708000);
    EXPECT_NE(other.bytes().data(), memory);
  }
  const BufferPool::Buffer too_small = pool_.take(500000);
  EXPECT_NE(too_small.bytes().data(), memory);
}

TEST_F(BufferPools, TheSmallestThatFitsIsTaken) {
  const std::byte* memory = nullptr;
  {
    const BufferPool::Buffer larger = pool_.take(105000);
    const BufferPool::Buffer smaller = pool_.take(100000);
    memory = smaller.bytes().data();
  }
  EXPECT_EQ(pool_.take(100000).bytes().data(), memory);
}

TEST_F(BufferPools, SlackIsRoomForMore) {
  const std::byte* memory = nullptr;
  {
    const BufferPool::Buffer first = pool_.take(100000, 6000);
    memory = first.bytes().data();
    EXPECT_EQ(first.bytes().size(), 100000u);
    EXPECT_EQ(held(), 106000u);
  }
  EXPECT_EQ(pool_.take(106000, 6600).bytes().data(), memory);
  EXPECT_EQ(pool_.take(86000, 6000).bytes().data(), memory) << "the slack is not counted as waste";
}

TEST_F(BufferPools, NothingIsAskedForOrHeldForNoBytes) {
  EXPECT_TRUE(BufferPool::Buffer().bytes().empty());
  step({1000});
  EXPECT_EQ(pool_.take(0).bytes().data(), nullptr);
  pool_.clear();
  EXPECT_EQ(held(), 0u);
}

TEST_F(BufferPools, NewBuffersDisplaceUselessOnes) {
  step({1000000});
  step({200000, 300000, 400000});
  EXPECT_EQ(held(), 900000u);
  step({200000, 300000, 400000});
  EXPECT_EQ(held(), 900000u);
}

// As far as it must be: the last step took as much.
TEST_F(BufferPools, WhatStillHasRoomStays) {
  step({600000, 400000});
  step({600000, 400000});
  step({300000});
  EXPECT_GE(held(), 700000u);
  EXPECT_LE(held(), 1000000u);
}

TEST_F(BufferPools, AStepsOwnBuffersAllStay) {
  for (int i = 0; i < 3; ++i) {
    for (std::uint64_t bytes = 200000; bytes <= 400000; bytes += 100000) (void)pool_.take(bytes);
    pool_.end_step();
    EXPECT_EQ(held(), 900000u);
  }
}

TEST_F(BufferPools, BuffersThatNoStepUsesForLongAreFreed) {
  step({1000000, 100000});
  for (int i = 0; i < 32; ++i) step({100000});
  EXPECT_EQ(held(), 1100000u);
  step({100000});
  step({100000});
  EXPECT_EQ(held(), 100000u);
}

TEST_F(BufferPools, ClearFreesWhatIsNotInUse) {
  const BufferPool::Buffer kept = pool_.take(1000);
  step({100000});
  pool_.clear();
  EXPECT_EQ(held(), 1000u);
  const BufferPool::Buffer other = pool_.take(100000);
  EXPECT_EQ(held(), 101000u);
}

TEST_F(BufferPools, AskForHugePagesForLongMemory) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "no huge pages here";
  const BufferPool::Buffer buffer = pool_.take(8U << 20U);
  EXPECT_NE(flags_of(buffer.bytes().data() + (4U << 20U)).find(" hg "), std::string::npos);
}

}  // namespace
}  // namespace deltawire
