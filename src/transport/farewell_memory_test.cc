// An allocation fails while a rank says goodbye.
#include "base/counted_new_testing.h"
#include "base/refusal_testing.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::farewell_memory_test {
namespace {

class FarewellMemory : public ::testing::TestWithParam<MeshKind> {};
INSTANTIATE_TEST_SUITE_P(Meshes, FarewellMemory,
                         ::testing::Values(MeshKind::kInproc, MeshKind::kTcp, MeshKind::kTls),
                         mesh_kind_name);

// The process goes on; the others learn why the mesh ends, once there is memory again to tell them.
TEST_P(FarewellMemory, ThatFailsEndsTheMeshAndNotTheProcess) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  std::vector<std::byte> got(10);
  const Handle receive = ranks[0]->post_recv(1, 1, got);
  testing::arm_failure(0, 1);
  ranks[1].reset();
  EXPECT_GT(testing::disarm_failure(), 0);
  testing::expect_refused(ranks[0]->wait(receive, soon()), ErrorCode::kNoMemory, 1);
}

}  // namespace
}  // namespace deltawire::test::farewell_memory_test
