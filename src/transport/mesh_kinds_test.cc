#include "transport/fabric/fabric.h"
#include "transport/fabric/memory_carrier_testing.h"
#include "transport/fabric/memory_fabric_testing.h"
#include "transport/mesh_testing.h"

namespace deltawire::test {
namespace {

Ranks connect_threads_over_packets(int world_size) {
  const auto switchboard = std::make_shared<Switchboard>(world_size);
  Ranks ranks(static_cast<std::size_t>(world_size));
  run_ranks(world_size, [&](int rank) {
    auto transport =
        connect_fabric({rank, world_size, "", 0}, std::make_unique<MemoryFabric>(switchboard, rank), soon());
    ASSERT_TRUE(transport.has_value()) << transport.error().message;
    ranks[static_cast<std::size_t>(rank)] = std::move(*transport);
  });
  return ranks;
}

}  // namespace

std::vector<MeshKind> tested_meshes() {
  return {MeshKind::kInproc,  MeshKind::kTcp,     MeshKind::kTls,
          MeshKind::kStriped, MeshKind::kPackets, MeshKind::kCarried};
}

Ranks connect_ranks(MeshKind kind, int world_size, const std::vector<LinkOptions>& links) {
  if (kind == MeshKind::kTcp) return connect_threads_over_tcp(world_size, links);
  if (kind == MeshKind::kTls) return connect_threads_over_tcp(world_size, links, Encryption::kRequired);
  if (kind == MeshKind::kStriped) return connect_threads_over_tcp(world_size, links, Encryption::kOff, 3);
  if (kind == MeshKind::kCarried) {
    return connect_threads_over_tcp(world_size, carried(world_size, links), Encryption::kRequired);
  }
  if (kind == MeshKind::kPackets) return connect_threads_over_packets(world_size);
  auto ranks = connect_inproc(world_size, links);
  EXPECT_TRUE(ranks.has_value()) << ranks.error().message;
  return ranks ? std::move(*ranks) : Ranks{};
}

}  // namespace deltawire::test
