// TCP over long lines. Where a line is long and loses packets, what most kernels start with (cubic) sends at
// a hundredth of the line's rate, since it takes each loss for a full line; BBR measures the rate instead
// (docs/results/speed/network.md).
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/result.h"
#include "transport/mesh/make_mesh.h"

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

// Unless the environment has DELTAWIRE_BBR=off. Errors: kInvalidArgument if it says neither on nor off.
Result<bool> is_bbr_wanted();

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

}  // namespace deltawire
