// The table of operations by itself.
#include <array>
#include <set>

#include <gtest/gtest.h>

#include "transport/mesh/operation.h"

namespace deltawire::test::operation_table_test {
namespace {

TEST(OperationTable, AHandleIsNeverGivenTwiceThoughItsPlaceIs) {
  OperationTable table;
  const std::vector<std::byte> byte(1);
  const std::vector<Bytes> pieces(7, Bytes(byte));
  std::set<std::uint64_t> given;
  std::set<const Operation*> places;
  for (int round = 0; round < 100; ++round) {
    Operation& send = table.add(pieces);
    Operation& receive = table.add();
    EXPECT_TRUE(send.pieces.size() == 7 && receive.pieces.empty());
    for (Operation* each : {&send, &receive}) {
      EXPECT_FALSE(each->done) << round;
      EXPECT_EQ(each->length, 0u) << round;
      EXPECT_TRUE(given.insert(each->handle).second) << round;
      places.insert(each);
    }
    const std::array handles{Handle{send.handle}, Handle{receive.handle}};
    EXPECT_EQ(table.find(handles[0]), &send);
    send.finish(7);
    table.remove(send);
    EXPECT_EQ(table.find(handles[0]), nullptr);
    EXPECT_EQ(table.find(handles[1]), &receive);
    table.remove(receive);
    EXPECT_EQ(table.find(handles[1]), nullptr);
  }
  EXPECT_EQ(places.size(), 2u);
  EXPECT_EQ(table.find(Handle::kNone), nullptr);
  EXPECT_EQ(table.find(Handle{3}), nullptr);  // a place that there has never been
}

TEST(OperationTable, WithARankFailAllThatAreOpenWithIt) {
  OperationTable table;
  std::array<Operation*, 4> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = &table.add();
    all[i]->peer = i == 3 ? 2 : 1;
  }
  all[0]->finish(5);
  table.fail_all(1);
  EXPECT_TRUE(!all[0]->failed && all[0]->length == 5) << "it was done before";
  EXPECT_TRUE(all[1]->failed && all[1]->done && all[2]->failed && all[2]->done);
  EXPECT_FALSE(all[3]->failed || all[3]->done);
}

}  // namespace
}  // namespace deltawire::test::operation_table_test
