#include "reduce/patterns/direct_rounds.h"

#include <algorithm>
#include <numeric>

namespace deltawire {

void DirectRounds::plan(std::size_t self, std::vector<std::size_t> pieces) {
  assert(self < pieces.size());
  self_ = self;
  pieces_ = std::move(pieces);
  restart();
}

void DirectRounds::restart() {
  assert(opened_ == closed_);
  round_bytes_.assign(std::ranges::max(pieces_), 0);
  opened_ = 0;
  pushed_ = 0;
  closed_ = 0;
  pulled_.assign(ranks(), 0);
}

void DirectRounds::note_push(std::size_t piece, std::uint64_t bytes) noexcept {
  assert(opened_ == 0 && piece < round_bytes_.size());
  round_bytes_[piece] = std::max(round_bytes_[piece], bytes);
}

bool DirectRounds::take_turns() const noexcept {
  const std::uint64_t all = std::accumulate(round_bytes_.begin(), round_bytes_.end(), std::uint64_t{0});
  return all > window_->most_bytes();
}

bool DirectRounds::may_open(bool is_oldest) const noexcept {
  if (is_pushing() || opened_ == round_bytes_.size()) return false;
  return window_->has_room(round_bytes_[opened_]) || (is_oldest && opened_ < closed_ + 2);
}

std::size_t DirectRounds::open() noexcept {
  assert(!is_pushing() && opened_ < round_bytes_.size());
  window_->open(round_bytes_[opened_]);
  pushed_ = 0;
  return opened_++;
}

bool DirectRounds::has_next(std::size_t owner) const noexcept {
  return pulled_[owner] < std::min(opened_, pieces_[owner]);
}

void DirectRounds::note_mean(std::size_t owner) noexcept {
  assert(has_next(owner));
  ++pulled_[owner];
  std::size_t end = opened_;
  for (std::size_t each = 0; each < ranks(); ++each) {
    if (pulled_[each] < pieces_[each]) end = std::min(end, pulled_[each]);
  }
  close_rounds(end);
}

void DirectRounds::close_rounds(std::size_t end) noexcept {
  assert(end <= opened_);
  for (; closed_ < end; ++closed_) window_->close(round_bytes_[closed_]);
}

}  // namespace deltawire
