// More data streams to ranks behind long lines (links/striped_link.h): the dialing rank decides how many, and
// dials them once all ranks are connected. Without them it says after a while that there are fewer.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "transport/tcp/dialer.h"
#include "transport/tcp/peer_table.h"

namespace deltawire {

// Thread rule: one thread.
class MoreStreams {
 public:
  // How long either end waits for them: eight handshakes over the longest line on earth, and lost packets.
  static constexpr std::chrono::milliseconds kPatience{10000};

  // `wanted`: MeshOptions::streams. `asks_for_bbr`: whether the kernel is asked for it before the number is
  // chosen.
  MoreStreams(int wanted, bool asks_for_bbr, int rank, int world_size);

  // Adds dialers to lower ranks whose data stream is new, and takes away those that had their time.
  // `endpoints` by rank. REQUIRES: this rank is connected to all.
  void advance(Deadline now, const PeerTable& table, const std::vector<Endpoint>& endpoints,
               std::vector<Dialer>& dialers);
  Deadline wake_at() const noexcept { return until_; }

  // By rank: how many lower ones have been given, kDialing while that is unknown.
  static constexpr int kDialing = -1;
  const std::vector<int>& given() const noexcept { return given_; }

 private:
  int streams_to(const Connection& line) const;

  int wanted_;
  bool asks_for_bbr_;
  int own_;
  std::vector<int> given_;
  std::vector<std::uint32_t> dialed_for_;  // by rank: the data stream's number in PeerTable::data_streams
  Deadline until_ = kNever;
};

}  // namespace deltawire
