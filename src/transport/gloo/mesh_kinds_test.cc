// The meshes of deltawire_transport_gloo_test: ranks as threads that meet in a folder.
#include "base/temporary_folder_testing.h"
#include "deltawire/connect_gloo.h"
#include "transport/mesh_testing.h"

namespace deltawire::test {

std::vector<MeshKind> tested_meshes() {
  return {MeshKind::kGloo};
}

Ranks connect_ranks(MeshKind, int world_size, const std::vector<LinkOptions>&) {
  static int meshes = 0;
  const testing::TemporaryFolder folder;
  Ranks ranks(static_cast<std::size_t>(world_size));
  const std::string job = "mesh-" + std::to_string(++meshes);
  run_ranks(world_size, [&](int rank) {
    GlooOptions options;
    options.rank = rank;
    options.world_size = world_size;
    options.rendezvous_folder = folder.path();
    options.job = job;
    options.host = "127.0.0.1";
    options.connect_timeout = 30s;
    auto transport = connect_gloo(options);
    ASSERT_TRUE(transport.has_value()) << transport.error().message;
    ranks[static_cast<std::size_t>(rank)] = std::move(*transport);
  });
  return ranks;
}

}  // namespace deltawire::test
