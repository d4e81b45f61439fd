// The order of the pieces of one bucket in `direct`. An owner's share travels in pieces, and piece k of every
// owner makes round k. A round opens, in order, when the window has room; then its pushes are encoded one by
// one; it closes when the means of all its pieces are here. So few rounds are open at one time, on all ranks
// roughly the same ones: one is pushed while the means of another come.
#pragma once

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "reduce/patterns/piece_window.h"

namespace deltawire {

class DirectRounds {
 public:
  struct Piece {
    std::size_t owner, piece;
  };

  // `window` is that of all exchanges of a reducer.
  explicit DirectRounds(std::shared_ptr<PieceWindow> window) : window_(std::move(window)) {}
  ~DirectRounds() { close_rounds(opened_); }
  DirectRounds(const DirectRounds&) = delete;
  DirectRounds& operator=(const DirectRounds&) = delete;

  // For rank `self`, given each owner's number of pieces; then restart(). No round is open, here and below.
  void plan(std::size_t self, std::vector<std::size_t> pieces) {
    assert(self < pieces.size());
    self_ = self;
    pieces_ = std::move(pieces);
    restart();
  }

  // The same again, for another bucket.
  void restart() {
    assert(opened_ == closed_);
    round_bytes_.assign(std::ranges::max(pieces_), 0);
    opened_ = 0;
    pushed_ = 0;
    closed_ = 0;
    pulled_.assign(ranks(), 0);
  }

  // The window takes what the line to the other ranks holds in a round trip.
  void fit_line(std::chrono::microseconds round_trip) noexcept {
    window_->fit_line(round_trip, static_cast<int>(ranks()));
  }

  // The bound of a push, before the first round opens.
  void note_push(std::size_t piece, std::uint64_t bytes) noexcept {
    assert(opened_ == 0 && piece < round_bytes_.size());
    round_bytes_[piece] = std::max(round_bytes_[piece], bytes);
  }

  // Whether the window can't take all rounds at once.
  bool take_turns() const noexcept {
    const std::uint64_t all = std::accumulate(round_bytes_.begin(), round_bytes_.end(), std::uint64_t{0});
    return all > window_->most_bytes();
  }

  // The oldest bucket may always have two rounds open, whatever the younger ones have: so all ranks get to
  // the same rounds.
  bool may_open(bool is_oldest) const noexcept {
    if (is_pushing() || opened_ == round_bytes_.size()) return false;
    return window_->has_room(round_bytes_[opened_]) || (is_oldest && opened_ < closed_ + 2);
  }

  // Returns the round.
  std::size_t open() noexcept {
    assert(!is_pushing() && opened_ < round_bytes_.size());
    window_->open(round_bytes_[opened_]);
    pushed_ = 0;
    return opened_++;
  }

  // Whether the round that was opened last has pushes left, and the next of them. Each rank starts with
  // another owner and ends with itself, so that no owner is flooded first; that owner may have no such piece.
  bool is_pushing() const noexcept { return opened_ > 0 && pushed_ < ranks(); }
  Piece next_push() noexcept {
    assert(is_pushing());
    return {push_order(pushed_++), opened_ - 1};
  }
  bool exists(const Piece& piece) const noexcept { return piece.piece < pieces_[piece.owner]; }
  // Calls visit(piece) for what next_push() has not returned yet of all rounds, opened or not.
  template <class Visit>
  void each_unpushed(Visit visit) const {
    const std::size_t whole_rounds = is_pushing() ? opened_ - 1 : opened_;
    for (std::size_t round = whole_rounds; round < round_bytes_.size(); ++round) {
      for (std::size_t place = round < opened_ ? pushed_ : 0; place < ranks(); ++place) {
        const Piece piece{push_order(place), round};
        if (exists(piece)) visit(piece);
      }
    }
  }

  // Whether a mean of an open round is awaited from the owner, and which one. The own rank forms its means.
  bool has_next(std::size_t owner) const noexcept {
    return pulled_[owner] < std::min(opened_, pieces_[owner]);
  }

  std::size_t next_mean(std::size_t owner) const noexcept { return pulled_[owner]; }

  void note_mean(std::size_t owner) noexcept {
    assert(has_next(owner));
    ++pulled_[owner];
    std::size_t end = opened_;
    for (std::size_t each = 0; each < ranks(); ++each) {
      if (pulled_[each] < pieces_[each]) end = std::min(end, pulled_[each]);
    }
    close_rounds(end);
  }

  // All means are here.
  bool all_closed() const noexcept { return closed_ == round_bytes_.size(); }

  std::size_t ranks() const noexcept { return pieces_.size(); }
  std::size_t push_order(std::size_t place) const noexcept { return (self_ + 1 + place) % ranks(); }

 private:
  void close_rounds(std::size_t end) noexcept {
    assert(end <= opened_);
    for (; closed_ < end; ++closed_) window_->close(round_bytes_[closed_]);
  }

  std::shared_ptr<PieceWindow> window_;
  std::size_t self_ = 0;
  std::vector<std::size_t> pieces_;         // by owner
  std::vector<std::uint64_t> round_bytes_;  // by round: bound of its longest push
  std::size_t opened_ = 0;                  // rounds
  std::size_t pushed_ = 0;                  // of the last one opened, in push_order()
  std::size_t closed_ = 0;                  // rounds
  std::vector<std::size_t> pulled_;         // by owner: pieces whose means are staged
};

}  // namespace deltawire
