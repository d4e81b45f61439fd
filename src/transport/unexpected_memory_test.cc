// An allocation fails while an unexpected message arrives.
#include "base/counted_new_testing.h"
#include "base/refusal_testing.h"
#include "transport/mesh/data_stream.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::unexpected_memory_test {
namespace {

class UnexpectedMemory : public ::testing::TestWithParam<MeshKind> {};
INSTANTIATE_TEST_SUITE_P(Meshes, UnexpectedMemory,
                         ::testing::Values(MeshKind::kInproc, MeshKind::kTcp, MeshKind::kTls),
                         mesh_kind_name);

// The store is full of empty messages. Receiving one makes room, and the next message, which is too short to
// wait for its own receive, needs memory at once. The post must return a handle even so: its memory may
// already be written to.
TEST_P(UnexpectedMemory, ThatFailsWhileSomebodyPostsFailsTheMeshAndNotThePost) {
  constexpr std::size_t kShort = 40000;
  Ranks ranks = connect_ranks(GetParam(), 2);
  std::vector<std::byte> got(10);
  send_and_forget(*ranks[1], 0, 9, got);
  ASSERT_TRUE(ranks[0]->wait(ranks[0]->post_recv(1, 9, got), soon()));  // leaves the record of an operation
  for (std::size_t i = 0; i < UnexpectedMessages::kMessagesMax; ++i) send_and_forget(*ranks[1], 0, 1, {});
  send_and_forget(*ranks[1], 0, 2, pattern(kShort, 2));
  const std::uint64_t headers = UnexpectedMessages::kMessagesMax + 3;
  while (ranks[0]->traffic().bytes_received < headers * kMessageHeaderBytes) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(20ms);
  Handle first = Handle::kNone;
  testing::arm_failure(0, 1);
  EXPECT_NO_THROW(first = ranks[0]->post_recv(1, 1, got));
  EXPECT_GT(testing::disarm_failure(), 0);
  ASSERT_NE(first, Handle::kNone);
  testing::expect_refused(ranks[0]->wait(first, soon()), ErrorCode::kNoMemory);
}

}  // namespace
}  // namespace deltawire::test::unexpected_memory_test
