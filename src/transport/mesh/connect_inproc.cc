#include <cerrno>
#include <string>

#include "base/os_error.h"
#include "deltawire/connect.h"
#include "transport/mesh/make_mesh.h"

namespace deltawire {
namespace {

constexpr int kWorldMax = 1024;

Status check_arguments(int world_size, const std::vector<LinkOptions>& links) {
  if (world_size < 1 || world_size > kWorldMax) {
    return fail(ErrorCode::kInvalidArgument, "connect_inproc: world_size must be 1 to " +
                                                 std::to_string(kWorldMax) + ", not " +
                                                 std::to_string(world_size));
  }
  if (!links.empty() && links.size() != static_cast<std::size_t>(world_size)) {
    return fail(ErrorCode::kInvalidArgument, "connect_inproc: " + std::to_string(links.size()) +
                                                 " link options for " + std::to_string(world_size) +
                                                 " ranks; give none or one for each");
  }
  for (std::size_t rank = 0; rank < links.size(); ++rank) {
    if (Status status = check_link_options(links[rank], static_cast<int>(rank), world_size); !status) {
      return status;
    }
  }
  return {};
}

}  // namespace

Result<std::vector<std::unique_ptr<Transport>>> connect_inproc(int world_size,
                                                               const std::vector<LinkOptions>& links,
                                                               std::uint32_t epoch) {
  if (Status status = check_arguments(world_size, links); !status) return forward_error(status);
  const auto world = static_cast<std::size_t>(world_size);
  std::vector<std::vector<PeerSockets>> sockets(world);
  for (auto& row : sockets) row.resize(world);
  for (std::size_t low = 0; low < world; ++low) {
    for (std::size_t high = low + 1; high < world; ++high) {
      auto data = GuardedFd::open_socket_pair();
      auto control = GuardedFd::open_socket_pair();
      if (!data[0] || !control[0]) {
        return fail(ErrorCode::kSystem, "connect_inproc: socketpair: " + os_error_text(errno) +
                                            "; is the limit of open files high enough?");
      }
      sockets[low][high] = {std::move(data[0]), std::move(control[0])};
      sockets[high][low] = {std::move(data[1]), std::move(control[1])};
    }
  }
  std::vector<std::unique_ptr<Transport>> ranks;
  for (std::size_t rank = 0; rank < world; ++rank) {
    auto transport = make_mesh({static_cast<int>(rank), epoch}, std::move(sockets[rank]),
                               links.empty() ? LinkOptions{} : links[rank]);
    if (!transport) return forward_error(transport);
    ranks.push_back(std::move(*transport));
  }
  return ranks;
}

}  // namespace deltawire
