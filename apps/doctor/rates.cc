#include "doctor/rates.h"

#include <algorithm>

#include "doctor/note.h"

namespace deltawire::doctor {
namespace {

// What is there is received also after the time: where more always is, only the clock ends it.
void take_until(Line& line, Deadline until) {
  while (Clock::now() < until && line.receive(kPieceBytes, until)) {
  }
}

}  // namespace

RateFindings take(Line& line, std::chrono::milliseconds time) {
  RateFindings rate;
  const std::uint64_t before = line.bytes_received();
  const Deadline silent = in(kPatience);
  while (line.bytes_received() == before && Clock::now() < silent) {
    const auto piece = line.receive(kPieceBytes, std::min(silent, in(std::chrono::milliseconds(20))));
    if (!piece && piece.error().code != ErrorCode::kTimeout) return rate;
  }
  rate.is_stalled = line.bytes_received() == before;
  if (rate.is_stalled) return rate;
  const Deadline begin = Clock::now();
  take_until(line, in(time / 2));
  const std::uint64_t at_half = line.bytes_received();
  const Deadline half = Clock::now();
  take_until(line, in(time / 2));
  const std::uint64_t at_end = line.bytes_received();
  // Where nothing came in the second half, as on a very busy machine, the whole counts.
  const bool counts_half = at_end > at_half;
  const std::chrono::duration<double> took = Clock::now() - (counts_half ? half : begin);
  rate.bytes_per_second =
      static_cast<double>(at_end - (counts_half ? at_half : before)) / std::max(1e-6, took.count());
  return rate;
}

std::optional<std::vector<std::byte>> give(Line& line, std::chrono::milliseconds time) {
  const std::vector<std::byte> piece(kPieceBytes);
  const Deadline end = in(time + 2 * kPatience);
  while (Clock::now() < end) {
    const Status sent = line.send(piece, in(kPatience));
    // A send that is late leaves half a piece behind: nothing can follow it, but the answer can come.
    auto said = line.receive(kNoteBytesMax, sent ? Clock::now() : end);
    if (said) return *std::move(said);
    if (said.error().code != ErrorCode::kTimeout) return std::nullopt;
  }
  return std::nullopt;
}

void note_state(const LineState& state, RateFindings& rate) {
  rate.congestion_control = state.congestion_control;
  if (state.bytes_sent > 0) {
    rate.resent = static_cast<double>(state.bytes_resent) / static_cast<double>(state.bytes_sent);
  }
}

}  // namespace deltawire::doctor
