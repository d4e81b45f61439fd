#include "transport/mesh/make_mesh.h"

#include <cassert>
#include <cerrno>
#include <cmath>
#include <string>
#include <system_error>

#include <sys/eventfd.h>

#include "base/os_error.h"
#include "transport/links/impaired_link.h"
#include "transport/mesh/engine.h"
#include "transport/process/machine.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kBurstMax = 16384;

}  // namespace

Status check_link_options(const LinkOptions& options, int rank, int world_size) {
  if (options.shape) {
    const double rate = options.shape->bytes_per_second;
    if (!std::isfinite(rate) || rate <= 0) {
      return fail(ErrorCode::kInvalidArgument, "link shape: bytes_per_second must be above 0");
    }
    if (options.shape->burst_bytes < 1 || options.shape->burst_bytes > kBurstMax) {
      return fail(ErrorCode::kInvalidArgument, "link shape: burst_bytes must be 1 to " +
                                                   std::to_string(kBurstMax) + ", not " +
                                                   std::to_string(options.shape->burst_bytes));
    }
  }
  for (const LinkFault& fault : options.faults) {
    if (fault.peer < 0 || fault.peer >= world_size || fault.peer == rank) {
      return fail(ErrorCode::kInvalidArgument, "link fault: rank " + std::to_string(rank) +
                                                   " has no link to rank " + std::to_string(fault.peer) +
                                                   " in a world of " + std::to_string(world_size));
    }
    if (fault.delay.count() < 0) {
      return fail(ErrorCode::kInvalidArgument, "link fault: delay must not be negative");
    }
  }
  return {};
}

Result<std::unique_ptr<Transport>> make_mesh(const MeshMember& self, std::vector<PeerSockets> sockets,
                                             const LinkOptions& options) {
  std::vector<PeerLinks> links(sockets.size());
  assert(self.rank >= 0 && static_cast<std::size_t>(self.rank) < sockets.size());
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    if (static_cast<int>(i) == self.rank) continue;
    links[i].control = sockets[i].control.take_link();
    links[i].data = sockets[i].data.take_link();
  }
  return make_mesh(self, std::move(links), options, nullptr);
}

Result<std::unique_ptr<Transport>> make_mesh(const MeshMember& self, std::vector<PeerLinks> links,
                                             const LinkOptions& options, std::unique_ptr<LinkHost> host) {
  GuardedFd wake = GuardedFd::open([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!wake) {
    return fail(ErrorCode::kSystem, "eventfd: " + std::generic_category().message(errno));
  }
  std::shared_ptr<LineBuckets> line;
  if (options.shape) {
    const TokenBucket full(*options.shape, MachineClock::now());
    line = std::make_shared<LineBuckets>(LineBuckets{full, full});
  }
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (static_cast<int>(i) == self.rank) continue;
    // The shape wraps the faults: a fault's byte positions count the bytes that are really sent.
    for (const LinkFault& fault : options.faults) {
      if (fault.peer == static_cast<int>(i))
        links[i].data = make_faulty_link(std::move(links[i].data), fault);
    }
    if (line) links[i].data = std::make_unique<ShapedLink>(std::move(links[i].data), line);
  }
  try {
    return std::make_unique<Engine>(self, std::move(links), std::move(host), std::move(wake));
  } catch (const std::system_error& error) {
    return no_thread("the transport", error);
  }
}

}  // namespace deltawire
