#include "transport/links/memory_carrier_testing.h"
#include "transport/mesh_testing.h"

namespace deltawire::test {

std::vector<MeshKind> tested_meshes() {
  return {MeshKind::kInproc, MeshKind::kTcp, MeshKind::kTls, MeshKind::kStriped, MeshKind::kCarried};
}

Ranks connect_ranks(MeshKind kind, int world_size, const std::vector<LinkOptions>& links) {
  if (kind == MeshKind::kTcp) return connect_threads_over_tcp(world_size, links);
  if (kind == MeshKind::kTls) return connect_threads_over_tcp(world_size, links, Encryption::kRequired);
  if (kind == MeshKind::kStriped) return connect_threads_over_tcp(world_size, links, Encryption::kOff, 3);
  if (kind == MeshKind::kCarried) {
    return connect_threads_over_tcp(world_size, carried(world_size, links), Encryption::kRequired);
  }
  auto ranks = connect_inproc(world_size, links);
  EXPECT_TRUE(ranks.has_value()) << ranks.error().message;
  return ranks ? std::move(*ranks) : Ranks{};
}

}  // namespace deltawire::test
