#include "transport/tcp/roll_call.h"

#include <string>

namespace deltawire {
namespace {

constexpr std::byte kHere{0x48};

}  // namespace

RollCall::RollCall(int rank, int world_size)
    : own_(rank), silent_rank_(world_size == 1 ? rank : -1), calls_(static_cast<std::size_t>(world_size)) {}

Status RollCall::advance(const std::vector<PeerSockets>& sockets, const std::vector<std::uint32_t>& streams) {
  silent_rank_ = own_;
  for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
    if (static_cast<int>(rank) == own_) continue;
    Call& call = calls_[rank];
    // A rank that has connected again, e.g. after a broken connection, starts over.
    if (call.stream != streams[rank]) call = Call{.stream = streams[rank]};
    const Connection& line = sockets[rank].data;
    if (!call.said) call.said = line.send(Bytes(&kHere, 1)).bytes == 1;
    std::byte got{};
    if (!call.heard && line.recv(MutBytes(&got, 1)).bytes == 1) {
      if (got != kHere) {
        return fail(ErrorCode::kCorrupt,
                    "rank " + std::to_string(rank) +
                        " did not confirm that it is connected to all ranks; do all run the same version of "
                        "deltawire, and were all started with the rendezvous, or none?",
                    static_cast<int>(rank));
      }
      call.heard = true;
    }
    if ((!call.said || !call.heard) && silent_rank_ == own_) silent_rank_ = static_cast<int>(rank);
  }
  return {};
}

void RollCall::add_interests(const std::vector<PeerSockets>& sockets, std::vector<pollfd>& polls) const {
  for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
    const Call& call = calls_[rank];
    const int fd = sockets[rank].data.get();
    if (fd < 0 || (call.said && call.heard)) continue;
    polls.push_back({fd, static_cast<short>((call.said ? 0 : POLLOUT) | (call.heard ? 0 : POLLIN)), 0});
  }
}

}  // namespace deltawire
