#include "transport/mesh/make_mesh.h"

#include <cassert>
#include <cerrno>
#include <cmath>
#include <string>
#include <system_error>

#include <sys/eventfd.h>

#include "base/errors.h"
#include "transport/links/carried_lines.h"
#include "transport/links/shaped_link.h"
#include "transport/links/striped_link.h"
#include "transport/mesh/engine.h"
#include "transport/process/machine.h"

namespace deltawire {

namespace {

constexpr std::uint64_t kBurstMax = 16384;

Result<std::unique_ptr<Link>> take_data_link(PeerSockets& sockets) {
  if (sockets.more.empty()) return sockets.data.take_link();
  std::vector<std::unique_ptr<Link>> streams;
  streams.push_back(sockets.data.take_link());
  for (Connection& one : sockets.more) {
    if (one) streams.push_back(one.take_link());
  }
  return StripedLink::make(std::move(streams));
}

void impair(const MeshMember& self, std::vector<PeerLinks>& links, const LinkOptions& options) {
  std::shared_ptr<LineBuckets> line;
  if (options.shape) {
    const TokenBucket full(*options.shape, MachineClock::now());
    line = std::make_shared<LineBuckets>(LineBuckets{full, full});
  }
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (static_cast<int>(i) == self.rank) continue;
    // Within the shape: byte positions count the bytes that are really sent.
    if (options.wrap) links[i].data = options.wrap(static_cast<int>(i), std::move(links[i].data));
    if (line) links[i].data = std::make_unique<ShapedLink>(std::move(links[i].data), line);
  }
}

}  // namespace

Status check_link_options(const LinkOptions& options) {
  if (!options.shape) return {};
  const double rate = options.shape->bytes_per_second;
  if (!std::isfinite(rate) || rate <= 0) {
    return invalid("link shape: bytes_per_second must be above 0");
  }
  if (options.shape->burst_bytes < 1 || options.shape->burst_bytes > kBurstMax) {
    return invalid("link shape: burst_bytes must be 1 to " + std::to_string(kBurstMax) + ", not " +
                   std::to_string(options.shape->burst_bytes));
  }
  return {};
}

Result<std::unique_ptr<Transport>> make_mesh(const MeshMember& self, std::vector<PeerSockets> sockets,
                                             const LinkOptions& options, std::unique_ptr<LinkHost> host) {
  std::vector<PeerLinks> links(sockets.size());
  assert(self.rank >= 0 && static_cast<std::size_t>(self.rank) < sockets.size());
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    if (static_cast<int>(i) == self.rank) continue;
    links[i].control = sockets[i].control.take_link();
    ASSIGN_OR_RETURN(links[i].data, take_data_link(sockets[i]));
  }
  return make_mesh(self, std::move(links), options, std::move(host));
}

Result<std::unique_ptr<Transport>> make_mesh(const MeshMember& self, std::vector<PeerLinks> links,
                                             const LinkOptions& options, std::unique_ptr<LinkHost> host) {
  GuardedFd wake = GuardedFd::open([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!wake) {
    return fail(ErrorCode::kSystem, "eventfd: " + std::generic_category().message(errno));
  }
  try {
    if (options.carrier && links.size() > 1) {
      ASSIGN_OR_RETURN(host, carry_data(links, options.carrier, std::move(host)));
    }
    impair(self, links, options);
    return std::make_unique<Engine>(self, std::move(links), std::move(host), std::move(wake));
  } catch (const std::system_error& error) {
    return no_thread("the transport", error);
  }
}

namespace {

constexpr int kWorldMax = 1024;

Status check_arguments(int world_size, const std::vector<LinkOptions>& links) {
  if (world_size < 1 || world_size > kWorldMax) {
    return invalid("connect_inproc: world_size must be 1 to " + std::to_string(kWorldMax) + ", not " +
                   std::to_string(world_size));
  }
  if (!links.empty() && links.size() != static_cast<std::size_t>(world_size)) {
    return invalid("connect_inproc: " + std::to_string(links.size()) + " link options for " +
                   std::to_string(world_size) + " ranks; give none or one for each");
  }
  for (const LinkOptions& each : links) {
    RETURN_IF_ERROR(check_link_options(each));
  }
  return {};
}

}  // namespace

Result<std::vector<std::unique_ptr<Transport>>> connect_inproc(int world_size,
                                                               const std::vector<LinkOptions>& links,
                                                               std::uint32_t epoch) {
  RETURN_IF_ERROR(check_arguments(world_size, links));
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
    ASSIGN_OR_RETURN(ranks.emplace_back(),
                     make_mesh({static_cast<int>(rank), epoch}, std::move(sockets[rank]),
                               links.empty() ? LinkOptions{} : links[rank]));
  }
  return ranks;
}

}  // namespace deltawire
