// What the doctor finds on a machine, and on the line between two of them. Fields that are unknown are empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deltawire/connect.h"
#include "deltawire/result.h"

namespace deltawire::doctor {

// As a process there sees it.
struct MachineFindings {
  std::string version{};         // of deltawire
  std::string name{};            // the host's
  std::string address{};         // what the name means there
  bool is_loopback = false;      // that address
  std::uint64_t processors = 0;  // that the process may use
  std::uint64_t all_processors = 0;
  std::uint64_t memory_bytes = 0;    // that it may use
  std::string congestion_control{};  // with which connections begin
  std::string bbr_refusal{};         // why they can't have BBR; empty: they can
  std::uint64_t send_bytes = 0;      // the most that a connection may hold
  std::uint64_t receive_bytes = 0;
  double clock = 0;  // seconds since 1970
};

// One direction.
struct RateFindings {
  double bytes_per_second = 0;
  double resent = 0;  // share of the bytes that were sent again
  std::string congestion_control{};
  bool is_stalled = false;  // short messages arrive, long ones don't
};

// From this machine to another.
struct LineFindings {
  Endpoint at;                      // as given
  std::optional<Error> no_answer;   // then nothing else is known
  std::string own_address{};        // from which this machine calls
  std::string seen_address{};       // the same, as the other one sees it
  std::string there{};              // the other one's address
  std::string no_way_back{};        // why the other one could not call here; empty: it could
  MachineFindings machine{};        // the other one's
  double clock_ahead = 0;           // seconds
  double round_trip = 0;            // seconds
  std::uint32_t segment_bytes = 0;  // of a packet
  std::uint32_t streams = 1;        // that would carry the messages of a pair of ranks
  bool is_encrypted = false;
  RateFindings out{};
  RateFindings back{};
};

}  // namespace deltawire::doctor
