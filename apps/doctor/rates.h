// How fast a line is in one direction: one end gives pieces, the other takes them and says how fast they
// came.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "deltawire/door.h"
#include "doctor/findings.h"

namespace deltawire::doctor {

inline constexpr std::size_t kPieceBytes = 16384;

// How long a message may take on a line that works: packets may be lost several times.
inline constexpr std::chrono::milliseconds kPatience{2500};

inline Deadline in(std::chrono::milliseconds time) {
  return Clock::now() + time;
}

// Takes pieces for that long, from the first one on. The rate is that of the second half: connections begin
// slowly.
RateFindings take(Line& line, std::chrono::milliseconds time);

// Gives pieces until the other end says something, which it returns; nothing if it is silent for longer.
std::optional<std::vector<std::byte>> give(Line& line, std::chrono::milliseconds time);

// Adds what this end of the line, which gave, knows.
void note_state(const LineState& state, RateFindings& rate);

}  // namespace deltawire::doctor
