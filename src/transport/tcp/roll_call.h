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

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <poll.h>

#include "base/errors.h"
#include "deltawire/result.h"
#include "transport/links/shared_areas.h"
#include "transport/mesh/make_mesh.h"
#include "transport/process/machine.h"
#include "transport/tcp/long_line.h"

namespace deltawire {

// Thread rule: one thread.
class RollCall {
 public:
  enum class Shares : std::uint8_t { kNothing, kRings, kAreasToo };

  RollCall(int rank, int world_size, Shares shares = Shares::kNothing)
      : own_(rank),
        shares_(shares),
        silent_rank_(world_size == 1 ? rank : -1),
        calls_(static_cast<std::size_t>(world_size)) {}

  // Sends and receives what is possible now on the data streams, and reads no byte beyond. `streams`:
  // PeerTable::data_streams. `more`: MoreStreams::given; empty: none has more. REQUIRES: this rank is
  // connected to all. Errors: kCorrupt, naming the rank that sent anything else.
  Status advance(const std::vector<PeerSockets>& sockets, const std::vector<std::uint32_t>& streams,
                 std::span<const int> more = {}) {
    silent_rank_ = own_;
    if (may_have_area_) make_area(sockets);
    for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
      if (static_cast<int>(rank) == own_) continue;
      Call& call = calls_[rank];
      const Connection& line = sockets[rank].data;
      // A rank that has connected again, e.g. after a broken connection, starts over.
      if (call.stream != streams[rank]) {
        call = Call{.stream = streams[rank],
                    .may_share = shares_ != Shares::kNothing && line.may_share_memory()};
        if (call.may_share && is_lower(rank)) offer(call, sockets);
      }
      const bool answers = call.may_share && !is_lower(rank);
      call.is_dialing = !more.empty() && more[rank] == MoreStreams::kDialing;
      if (is_lower(rank) && !more.empty() && !call.is_dialing && !call.said) call.more = more[rank];
      if (!answers && !call.is_dialing) say(call, line, is_lower(rank));
      RETURN_IF_ERROR(hear(call, line, rank));
      if (answers && call.heard) say(call, line, false);
      if (!lacks_streams(call, sockets[rank])) call.more_by = kNever;
      const bool is_ready = call.said && call.heard && call.more_by == kNever;
      if (!is_ready && silent_rank_ == own_) silent_rank_ = static_cast<int>(rank);
    }
    return {};
  }

  // Leaves PeerSockets::more to the ranks with which more streams were agreed, and to no other. REQUIRES:
  // is_complete().
  void settle_more(std::vector<PeerSockets>& sockets) const {
    for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
      if (calls_[rank].more == 0) {
        sockets[rank].more.clear();
      } else if (sockets[rank].more.empty()) {
        sockets[rank].more.emplace_back();  // the other end writes segments all the same
      }
    }
  }

  // Gives the agreed memory to the data streams. REQUIRES: is_complete().
  void share_memory(std::vector<PeerSockets>& sockets) {
    for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
      if (!calls_[rank].memory) continue;
      const auto side = is_lower(rank) ? SharedMemory::Side::kMaker : SharedMemory::Side::kTaker;
      sockets[rank].data.share(std::move(calls_[rank].memory), side);
    }
  }

  // The areas of all ranks; its own without room unless all others read it, null if nobody shares any.
  // REQUIRES: is_complete().
  std::unique_ptr<SharedAreas> take_areas() {
    std::vector<PeerArea> peers;
    peers.reserve(calls_.size());
    std::size_t there = 0;
    for (Call& call : calls_) {
      if (call.area) ++there;
      peers.push_back(std::move(call.area));
    }
    if (there == 0) return nullptr;
    if (there + 1 < calls_.size()) area_ = {};
    return std::make_unique<SharedAreas>(std::move(area_), std::move(peers));
  }

  // Which ranks of this machine share no memory with this one, although it would, and why; empty if all do.
  std::string describe_unshared() const {
    std::string ranks;
    std::string problem;
    for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
      if (calls_[rank].problem.empty()) continue;
      if (problem.empty()) problem = calls_[rank].problem;
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
    if (ranks.empty()) return {};
    return "rank " + std::to_string(own_) + " shares no memory with rank " + ranks +
           " of the same machine and uses sockets, which are slower: " + problem;
  }

  bool is_complete() const noexcept { return silent_rank_ == own_; }
  // A rank that has not sent its byte. REQUIRES: advance(), !is_complete().
  int silent_rank() const noexcept { return silent_rank_; }

  // When to call advance() again although nothing has come.
  Deadline wake_at() const noexcept {
    Deadline first = kNever;
    for (const Call& call : calls_) first = std::min(first, call.more_by);
    return first;
  }

  void add_interests(const std::vector<PeerSockets>& sockets, std::vector<pollfd>& polls) const {
    for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
      const Call& call = calls_[rank];
      const int fd = sockets[rank].data.get();
      if (fd < 0 || (call.said && call.heard)) continue;
      const bool is_saying = !call.said && !call.is_dialing;
      polls.push_back({fd, static_cast<short>((is_saying ? POLLOUT : 0) | (call.heard ? 0 : POLLIN)), 0});
    }
  }

 private:
  static constexpr std::byte kHere{0x48};    // "H"
  static constexpr std::byte kShared{0x4D};  // "M"
  static constexpr std::byte kNoMore{0x30};  // "0"; the digits after it are numbers of streams

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

  void offer(Call& call, const std::vector<PeerSockets>& sockets) const {
    const auto others = static_cast<std::size_t>(std::ranges::count_if(
        sockets, [](const PeerSockets& other) { return other.data.may_share_memory(); }));
    const std::size_t ring_bytes = SharedMemory::ring_bytes_for(others);
    if (ring_bytes == 0) {
      call.problem = "there are too many";
      return;
    }
    call.memory = SharedMemory::make(ring_bytes);
    if (!call.memory) call.problem = "the system gives none (" + os_error_text(errno) + ")";
  }

  // The first time that it is asked.
  void make_area(const std::vector<PeerSockets>& sockets) {
    may_have_area_ = false;
    const auto others = std::ranges::count_if(
        sockets, [](const PeerSockets& other) { return other.data.may_share_memory(); });
    if (shares_ == Shares::kAreasToo && others > 0 && others + 1 == std::ssize(sockets))
      area_ = OwnArea::make();
  }

  void say(Call& call, const Connection& line, bool to_lower) {
    if (!call.said && to_lower && call.memory) offer_files(call, line);
    if (call.said || (to_lower && call.memory)) return;
    if (call.memory && call.area && area_) {
      const GuardedFd* const file = &area_.file();
      call.said = send_with_files(line.get(), kShared, {&file, 1}).bytes == 1;
      return;
    }
    const bool has_more = to_lower && call.more > 0;
    const std::byte byte = call.memory ? kShared
                           : has_more  ? std::byte(std::to_integer<int>(kNoMore) + call.more)
                                       : kHere;
    call.said = line.send(Bytes(&byte, 1)).bytes == 1;
  }

  // To a lower rank, which answers. Where the system refuses there is no memory to share.
  void offer_files(Call& call, const Connection& line) {
    const std::array files{static_cast<const GuardedFd*>(&call.memory.file()),
                           static_cast<const GuardedFd*>(&area_.file())};
    const IoResult sent = send_with_files(line.get(), kHere, std::span(files).first(area_ ? 2 : 1));
    call.said = sent.bytes == 1;
    if (sent.kind == IoResult::Kind::kWouldBlock) return;
    call.memory.file().reset();
    if (call.said) return;
    call.memory = {};
    call.problem = "the system passes none on (" + os_error_text(sent.error) + ")";
  }

  Status hear(Call& call, const Connection& line, std::size_t rank) const {
    if (call.heard) return {};
    std::byte got{};
    std::array<GuardedFd, kPassedFilesMax> files;
    const IoResult result =
        call.may_share ? receive_with_files(line.get(), got, files) : line.recv(MutBytes(&got, 1));
    if (result.bytes != 1) return {};
    const bool accepts = got == kShared && call.memory && is_lower(rank);
    const int more = std::to_integer<int>(got) - std::to_integer<int>(kNoMore);
    const bool has_more = !is_lower(rank) && more > 0 && more <= Claims::kMoreStreamsMax;
    if (got != kHere && !accepts && !has_more) {
      return corrupt("rank " + std::to_string(rank) +
                         " did not confirm that it is connected to all ranks; do all run the same version of "
                         "deltawire, and were all started with the rendezvous, or none?",
                     static_cast<int>(rank));
    }
    call.heard = true;
    if (has_more) {
      call.more = more;
      call.more_by = MachineClock::now() + MoreStreams::kPatience;
    }
    if (is_lower(rank) && !accepts) {
      if (call.memory) call.problem = "rank " + std::to_string(rank) + " takes none";
      call.memory = {};
    }
    if (call.may_share) take_files(call, rank, files);
    return {};
  }

  // Those of a higher rank, which it has dialed: one that is still missing at the end has broken.
  static bool lacks_streams(const Call& call, const PeerSockets& sockets) noexcept {
    return call.more_by != kNever && sockets.streams_more() < static_cast<std::size_t>(call.more) &&
           MachineClock::now() < call.more_by;
  }

  void take_files(Call& call, std::size_t rank, std::span<GuardedFd> files) const {
    if (is_lower(rank)) {
      if (call.memory) call.area = PeerArea::take(std::move(files[0]));
      return;
    }
    const bool is_offered = static_cast<bool>(files[0]);
    if (is_offered) call.memory = SharedMemory::take(std::move(files[0]));
    if (!call.memory) {
      call.problem = is_offered ? "it can't be mapped (" + os_error_text(errno) + ")"
                                : "rank " + std::to_string(rank) + " offers none";
    } else {
      call.area = PeerArea::take(std::move(files[1]));
    }
  }

  int own_;
  Shares shares_;
  int silent_rank_;
  bool may_have_area_ = true;
  OwnArea area_;
  std::vector<Call> calls_;  // by rank
};

}  // namespace deltawire
