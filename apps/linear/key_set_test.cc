#include "linear/key_set.h"

#include <gtest/gtest.h>

namespace deltawire::linear::key_set_test {
namespace {

using Keys = std::vector<std::uint32_t>;

Keys taken_from(KeySet& set) {
  Keys keys;
  set.remove_all([&](std::uint32_t key) { keys.push_back(key); });
  return keys;
}

TEST(KeySet, HasEachKeyOnceInOrder) {
  KeySet set(200);
  for (const std::uint32_t key : {199U, 64U, 0U, 63U}) EXPECT_TRUE(set.add(key));
  EXPECT_FALSE(set.add(64));
  EXPECT_EQ(taken_from(set), (Keys{0, 63, 64, 199}));
}

TEST(KeySet, TellsWhichKeysOfRowsAreNew) {
  const RowBlock block{
      .labels = {1, 1, 1}, .ends = {2, 4, 5}, .keys = {3, 70, 3, 5, 9}, .values = {1, 1, 1, 1, 1}};
  KeySet set(71);
  set.add(70);
  const std::vector<std::uint32_t> rows{1, 0};
  Keys fresh{1000};
  set.add_rows(block, rows, fresh);
  EXPECT_EQ(fresh, (Keys{1000, 3, 5}));
  EXPECT_EQ(taken_from(set), (Keys{3, 5, 70}));
}

TEST(KeySet, IsEmptyOnceItsKeysAreTaken) {
  KeySet set(300);
  for (const std::uint32_t key : {0U, 127U, 128U, 299U}) set.add(key);
  EXPECT_EQ(taken_from(set), (Keys{0, 127, 128, 299}));
  EXPECT_TRUE(taken_from(set).empty());
  EXPECT_TRUE(set.add(0));
}

}  // namespace
}  // namespace deltawire::linear::key_set_test
