// TCP over long lines. Where a line is long and loses packets, what most kernels start with (cubic) sends at
// a hundredth of the line's rate, since it takes each loss for a full line; BBR measures the rate instead
// (docs/results/speed/network.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/result.h"
#include "transport/mesh/make_mesh.h"
#include "transport/tcp/dialer.h"
#include "transport/tcp/peer_table.h"

namespace deltawire {

// Shorter ones are left alone: within a site, losses are rare and soon made good, and BBR's pacing costs
// time.
inline constexpr std::chrono::microseconds kLongRoundTrip = std::chrono::milliseconds(5);

inline constexpr std::string_view kHowToAllowBbr =
    "allow BBR by modprobe tcp_bbr and sysctl net.ipv4.tcp_allowed_congestion_control='reno cubic bbr', or "
    "make it the default";

// Asks the kernel for BBR on a TCP socket, connected or not. Returns the errno with which it refuses,
// otherwise 0.
int ask_for_bbr(int fd) noexcept;
// The same on a connection whose round trip is at least that long; 0 on others.
int ask_for_bbr(const Connection& line, std::chrono::microseconds least = kLongRoundTrip) noexcept;

// Whether the environment's DELTAWIRE_BBR leaves that on.
Result<bool> wants_bbr();

// How many data streams a line gets: `wanted`, or if that is 0 what its round trip and congestion control ask
// for. 1 where it is no TCP.
int streams_for(const LineState& line, int wanted);
inline constexpr int kStreamsMax = 8;
// What the environment's DELTAWIRE_STREAMS wants: "auto" (0, also if it is not set) or 1 to 8. Errors:
// kInvalidArgument for anything else.
Result<int> wanted_streams();
// Lets the system hold back as little as keeps the line busy: what it takes beyond waits behind a lost packet
// although another stream could send it.
void keep_little_unsent(const Connection& line) noexcept;

// Asks for it on the lines to all ranks. Returns a line for the log where the kernel refuses, otherwise
// nothing.
std::string fit_long_lines(int own, const std::vector<PeerSockets>& sockets,
                           std::chrono::microseconds least = kLongRoundTrip);

// More data streams to ranks behind long lines (links/striped_link.h): the dialing rank decides how many, and
// dials them once all ranks are connected. Without them it says after a while that there are fewer.
//
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
