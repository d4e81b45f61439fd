// How a bootstrap ends: a rank that is connected to all others sends each of them one byte on the data
// stream, and ends its bootstrap when it has received that byte from all. So no rank begins to work, with
// deadlines, while others still connect. The mesh's messages follow on the same stream, or on that and on
// more of them: a rank that has dialed more (long_line.h) says "1" to "7" instead of "H", and the other
// end waits for as many.
//
// Two ranks that talk through a Unix socket in the clear agree at the same time to share memory. The higher
// one sends its byte with the file (links/shared_link.h). The lower one waits for that, and answers with
// "M" in the place of "H" if it has mapped the file: then the messages go through it. Who offers nothing, or
// answers "H", as older versions do, stays with the socket. A rank all of whose peers are such sends the file
// of its area (links/shared_areas.h) along, the lower one only to a rank that has sent its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <poll.h>

#include "deltawire/result.h"
#include "transport/links/shared_areas.h"
#include "transport/mesh/make_mesh.h"

namespace deltawire {

// Thread rule: one thread.
class RollCall {
 public:
  enum class Shares : std::uint8_t { kNothing, kRings, kAreasToo };
  RollCall(int rank, int world_size, Shares shares = Shares::kNothing);

  // Sends and receives what is possible now on the data streams, and reads no byte beyond. `streams`:
  // PeerTable::data_streams. `more`: MoreStreams::given; empty: none has more. REQUIRES: this rank is
  // connected to all. Errors: kCorrupt, naming the rank that sent anything else.
  Status advance(const std::vector<PeerSockets>& sockets, const std::vector<std::uint32_t>& streams,
                 std::span<const int> more = {});

  // Leaves PeerSockets::more to the ranks with which more streams were agreed, and to no other. REQUIRES:
  // is_complete().
  void settle_more(std::vector<PeerSockets>& sockets) const;

  // Gives the agreed memory to the data streams. REQUIRES: is_complete().
  void share_memory(std::vector<PeerSockets>& sockets);
  // The areas of all ranks; its own without room unless all others read it, null if nobody shares any.
  // REQUIRES: is_complete().
  std::unique_ptr<SharedAreas> take_areas();
  // Which ranks of this machine share no memory with this one, although it would, and why; empty if all do.
  std::string describe_unshared() const;

  bool is_complete() const noexcept { return silent_rank_ == own_; }
  // A rank that has not sent its byte. REQUIRES: advance(), !is_complete().
  int silent_rank() const noexcept { return silent_rank_; }

  // When to call advance() again although nothing has come.
  Deadline wake_at() const noexcept;
  void add_interests(const std::vector<PeerSockets>& sockets, std::vector<pollfd>& polls) const;

 private:
  struct Call {
    std::uint32_t stream = 0;  // its number in PeerTable::data_streams
    bool said = false;
    bool heard = false;
    bool is_dialing = false;  // more streams: until they are there it says nothing
    bool may_share = false;
    int more = 0;  // data streams besides the first, as one end says
    Deadline more_by = kNever;
    SharedMemory memory{};  // offered to a lower rank or, of a higher one, mapped
    std::string problem{};  // why there is none
    PeerArea area{};
  };

  bool is_lower(std::size_t rank) const noexcept { return static_cast<int>(rank) < own_; }
  void offer(Call& call, const std::vector<PeerSockets>& sockets) const;
  void make_area(const std::vector<PeerSockets>& sockets);
  void say(Call& call, const Connection& line, bool to_lower);
  void offer_files(Call& call, const Connection& line);
  Status hear(Call& call, const Connection& line, std::size_t rank) const;
  static bool lacks_streams(const Call& call, const PeerSockets& sockets) noexcept;
  void take_files(Call& call, std::size_t rank, std::span<GuardedFd> files) const;

  int own_;
  Shares shares_;
  int silent_rank_;
  bool may_have_area_ = true;
  OwnArea area_;
  std::vector<Call> calls_;  // by rank
};

}  // namespace deltawire
