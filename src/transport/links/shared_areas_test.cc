// An area: what is taken of it, when that may be taken again, and what another process can do with it.
#include "transport/links/shared_areas.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace deltawire::shared_areas_test {
namespace {

using Use = OwnArea::Use;

TEST(OwnArea, WhatIsReadIsTakenAgainAndNothingTwice) {
  OwnArea area = OwnArea::make();
  ASSERT_TRUE(area);
  const MutBytes first = area.take(10000, Use::kNow);
  const MutBytes second = area.take(5000, Use::kNow);
  ASSERT_EQ(first.size(), 10000u);
  ASSERT_EQ(second.size(), 5000u);
  EXPECT_GE(area.place_of(second), area.place_of(first) + 10000);
  const std::size_t held = area.held_bytes();
  area.give_back(first);
  // The smallest that fits, and what is left of it.
  const MutBytes part = area.take(4096, Use::kNow);
  EXPECT_EQ(area.place_of(part), area.place_of(first));
  const MutBytes rest = area.take(8192, Use::kNow);
  EXPECT_EQ(area.place_of(rest), area.place_of(part) + 4096);
  EXPECT_EQ(area.held_bytes(), held);
  area.give_back(second);
  area.give_back(rest);
  area.give_back(part);
  EXPECT_EQ(area.place_of(area.take(20000, Use::kNow)), area.place_of(part)) << "free neighbours are one";
  EXPECT_EQ(area.held_bytes(), held);
}

TEST(OwnArea, WhatOthersMayStillCopyWaitsForTheVote) {
  OwnArea area = OwnArea::make();
  const MutBytes means = area.take(4096, Use::kUntilVote);
  area.give_back(means);
  EXPECT_NE(area.place_of(area.take(4096, Use::kUntilVote)), area.place_of(means));
  EXPECT_NE(area.place_of(area.take(4096, Use::kNow)), area.place_of(means));
  area.note_vote();
  EXPECT_NE(area.place_of(area.take(4096, Use::kNow)), area.place_of(means)) << "pushes would cut it up";
  EXPECT_EQ(area.place_of(area.take(4096, Use::kUntilVote)), area.place_of(means));
}

TEST(OwnArea, ItEnds) {
  OwnArea area = OwnArea::make();
  EXPECT_TRUE(area.take(OwnArea::kBytes + 1, Use::kNow).empty());
  EXPECT_TRUE(area.take(SIZE_MAX, Use::kNow).empty());
  EXPECT_TRUE(area.take(0, Use::kNow).empty());
  const MutBytes most = area.take(OwnArea::kBytes - 4096, Use::kNow);
  EXPECT_FALSE(most.empty());
  EXPECT_TRUE(area.take(4097, Use::kNow).empty());
  EXPECT_FALSE(area.take(4096, Use::kNow).empty());
  area.give_back(most);
  EXPECT_TRUE(OwnArea().take(1, Use::kNow).empty());
}

TEST(PeerArea, ReadsWhatItsRankWroteAndNothingBeyond) {
  OwnArea own = OwnArea::make();
  const GuardedFd& file = own.file();
  const PeerArea peer = PeerArea::take(GuardedFd::open([&] { return ::dup(file.get()); }));
  ASSERT_TRUE(peer);
  const MutBytes given = own.take(100, Use::kNow);
  given[99] = std::byte{42};
  EXPECT_EQ(peer.at(own.place_of(given), 100)[99], std::byte{42});
  EXPECT_EQ(peer.at(OwnArea::kBytes - 1, 1).size(), 1u);
  EXPECT_TRUE(peer.at(OwnArea::kBytes, 1).empty());
  EXPECT_TRUE(peer.at(OwnArea::kBytes - 1, 2).empty());
  EXPECT_TRUE(peer.at(1, UINT64_MAX).empty());
  EXPECT_TRUE(PeerArea().at(0, 1).empty());
}

// Neither end can take pages away, and who maps another's area can't write to it.
TEST(PeerArea, NobodyCanTakePagesAway) {
  OwnArea own = OwnArea::make();
  const int file = own.file().get();
  EXPECT_NE(::ftruncate(file, 4096), 0);
  EXPECT_NE(::ftruncate(file, static_cast<off_t>(2 * OwnArea::kBytes)), 0);
  EXPECT_NE(::fcntl(file, F_ADD_SEALS, F_SEAL_WRITE), 0);
#ifdef F_SEAL_FUTURE_WRITE
  if ((::fcntl(file, F_GET_SEALS) & F_SEAL_FUTURE_WRITE) == 0) GTEST_SKIP() << "Linux before 5.1";
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
  EXPECT_NE(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
#endif
}

TEST(PeerArea, AnythingElseIsNone) {
  EXPECT_FALSE(PeerArea::take(GuardedFd()));
  EXPECT_FALSE(PeerArea::take(GuardedFd::open([] { return ::open("/dev/null", O_RDWR | O_CLOEXEC); })));
  const auto unsealed = [] {
    const int file = ::memfd_create("test", MFD_CLOEXEC);
    EXPECT_EQ(::ftruncate(file, static_cast<off_t>(OwnArea::kBytes)), 0);
    return file;
  };
  EXPECT_FALSE(PeerArea::take(GuardedFd::open(unsealed)));
  SharedFile small = SharedFile::make(4096, SharedFile::Writers::kMaker);
  EXPECT_FALSE(PeerArea::take(std::move(small.file())));
}

}  // namespace
}  // namespace deltawire::shared_areas_test
