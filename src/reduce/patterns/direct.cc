// `direct`: each part has one owner rank. Ranks push their compressed parts to the owners; an owner decodes
// them in rank order into the mean, compresses that once (with a residual of its own), and all pull the same
// bytes: 3LC's parameter server with its shared pull (section 3), spread over the workers. Two encodings,
// whatever the number of ranks.
//
// An owner's share travels in pieces, messages of whole parts. Piece k of every owner makes round k: its
// pushes leave when the window (PieceWindow) has room, and it closes when all its means are here. So few
// rounds are open at one time, on all ranks the same ones, more or less: one is pushed while the means of
// another come.
//
//   start: open the rounds that the window takes
//   move:  open a round: post its receives, encode and send its pushes, one by one; decode the own piece's
//          pushes in rank order; encode its mean, send it as the pull; decode another owner's pull
#include "reduce/patterns/direct.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "reduce/pattern_reducer.h"
#include "reduce/patterns/part_exchange.h"

namespace deltawire {
namespace {

class DirectExchange final : public PartExchange {
 public:
  DirectExchange(BufferPool& pool, Channel& push, Channel& pull, const MostElements& most,
                 std::shared_ptr<PieceWindow> window)
      : PartExchange(pool, most), push_(push), pull_(pull), window_(std::move(window)) {}
  ~DirectExchange() override { close_rounds(opened_); }
  DirectExchange(const DirectExchange&) = delete;
  DirectExchange& operator=(const DirectExchange&) = delete;

  Status prepare() override;
  Status start() override;
  Result<Progress> move() override;
  void more_awaited(std::vector<Handle>& handles) const override;
  void keep_unsent() noexcept override;

 private:
  void plan(bool cut_already) override;
  std::size_t list_count() const override { return static_cast<std::size_t>(world()); }
  std::size_t own_list() const override { return self(); }
  std::vector<OwnedRange> ranges_of(const Named& tensor) const override {
    return direct_parts(tensor, world(), most());
  }
  KeyPartition key_partition_of(const Named& tensor) const override {
    return deltawire::key_partition_of(tensor.tensor.elements(), world());
  }
  std::uint64_t room_of(const Channel& channel, const PartMessage& message) const;
  bool may_open() const noexcept;
  void open_round();
  bool is_pushing() const noexcept { return opened_ > 0 && pushed_ < ranks(); }
  std::size_t push_order(std::size_t place) const noexcept { return (self() + 1 + place) % ranks(); }
  Status push_next();
  bool has_next(std::size_t owner) const noexcept {
    return pulled_[owner] < std::min(opened_, pieces_[owner]);
  }
  Status add_push();
  Status share_mean();
  Status apply_pull(std::size_t owner);
  void note_pulled(std::size_t owner);
  void close_rounds(std::size_t end) noexcept;
  Handle awaited_push() const;
  std::size_t self() const noexcept { return static_cast<std::size_t>(rank()); }
  std::size_t ranks() const noexcept { return static_cast<std::size_t>(world()); }
  // Of one round and one peer: what it pushes to this rank, and its mean.
  Incoming& push_from(std::size_t peer, std::size_t piece) { return incoming(2 * (piece * ranks() + peer)); }
  Incoming& pull_from(std::size_t owner, std::size_t piece) {
    return incoming(2 * (piece * ranks() + owner) + 1);
  }

  Channel& push_;
  Channel& pull_;
  std::shared_ptr<PieceWindow> window_;
  std::vector<std::size_t> pieces_;         // by owner
  std::vector<std::uint64_t> round_bytes_;  // by round: bound of its longest push
  bool is_prepared_ = false;                // so that a folding revert keeps it
  bool take_turns_ = false;                 // the rounds: the window does not take all of them at once
  std::uint64_t push_room_ = 0;             // of the longest dense message
  std::uint64_t pull_room_ = 0;
  std::size_t opened_ = 0;                        // rounds, in order
  std::size_t pushed_ = 0;                        // pieces of the last one opened, in push_order()
  std::size_t closed_ = 0;                        // rounds
  std::vector<std::size_t> pulled_;               // by owner, the own rank too: pieces whose means are staged
  std::size_t added_ = 0;                         // ranks whose push of the next own piece was added
  std::vector<std::span<const Bytes>> own_push_;  // by own piece: this rank's message to itself
};

void DirectExchange::plan(bool cut_already) {
  PartExchange::plan(cut_already);
  std::uint64_t owned = 0;
  std::size_t sends = 0;
  pieces_.resize(ranks());
  std::size_t rounds = 0;
  for (std::size_t owner = 0; owner < ranks(); ++owner) {
    pieces_[owner] = input(owner).size();
    sends += pieces_[owner] * (owner == self() ? ranks() : 1);
    rounds = std::max(rounds, pieces_[owner]);
    for (std::size_t piece = 0; piece < pieces_[owner]; ++piece) {
      if (owner == self()) owned += input(owner)[piece].raw_bytes();
    }
  }
  count_raw_bytes(raw_bytes() - owned + static_cast<std::uint64_t>(world() - 1) * owned);
  round_bytes_.assign(rounds, 0);
  expect_sends(sends);
  is_prepared_ = false;
  opened_ = 0;
  pushed_ = 0;
  closed_ = 0;
  pulled_.assign(ranks(), 0);
  added_ = 0;
  own_push_.assign(pieces_[self()], {});
}

Status DirectExchange::prepare() {
  if (Status legal = check_bounds(push_); !legal) return legal;
  push_room_ = 0;
  pull_room_ = 0;
  for (std::size_t owner = 0; owner < ranks(); ++owner) {
    for (std::size_t piece = 0; piece < pieces_[owner]; ++piece) {
      const PartMessage& message = input(owner)[piece];
      if (Status prepared = push_.prepare(message.layout(), step().number); !prepared) return prepared;
      // Of pairs what this rank has: nobody knows how many others have, and bounds for all would say nothing.
      const std::uint64_t push_bytes = push_.message_bound(message.layout(), step().number);
      round_bytes_[piece] = std::max(round_bytes_[piece], push_bytes);
      if (message.has_keys()) continue;
      push_room_ = std::max(push_room_, push_bytes);
      pull_room_ = std::max(pull_room_, pull_.message_bound(message.layout(), step().number));
    }
  }
  take_turns_ =
      std::accumulate(round_bytes_.begin(), round_bytes_.end(), std::uint64_t{0}) > window_->most_bytes();
  is_prepared_ = true;
  return {};
}

// Where rounds take turns, all dense messages of a kind take the same: each fits into what another leaves.
std::uint64_t DirectExchange::room_of(const Channel& channel, const PartMessage& message) const {
  if (!take_turns_ || message.has_keys()) return longest(channel, message);
  return &channel == &push_ ? push_room_ : pull_room_;
}

Status DirectExchange::start() {
  if (!is_prepared_) {
    if (Status prepared = prepare(); !prepared) return prepared;
  }
  while (may_open()) {
    open_round();
    while (is_pushing()) {
      if (Status pushed = push_next(); !pushed) return pushed;
    }
  }
  return {};
}

// The oldest bucket may always have two rounds on their way, whatever the younger ones have: so all ranks
// come to the same rounds.
bool DirectExchange::may_open() const noexcept {
  if (is_pushing() || opened_ == round_bytes_.size()) return false;
  return window_->has_room(round_bytes_[opened_]) || (goes_first() && opened_ < closed_ + 2);
}

void DirectExchange::open_round() {
  const std::size_t piece = opened_;
  window_->open(round_bytes_[piece]);
  ++opened_;
  pushed_ = 0;
  for (std::size_t peer = 0; peer < ranks(); ++peer) {
    if (peer == self()) continue;
    const int from = static_cast<int>(peer);
    if (piece < pieces_[self()]) {
      post(push_from(peer, piece), from, kFirstStage, room_of(push_, input(self())[piece]));
    }
    if (piece < pieces_[peer]) {
      post(pull_from(peer, piece), from, kSecondStage, room_of(pull_, input(peer)[piece]));
    }
  }
}

// Everybody starts with another owner, and ends with itself, so that no owner is flooded first.
Status DirectExchange::push_next() {
  const std::size_t owner = push_order(pushed_++);
  const std::size_t piece = opened_ - 1;
  if (piece >= pieces_[owner]) return {};
  const PartMessage& message = input(owner)[piece];
  const auto encoded = encode(push_, message.layout(), kFirstStage, room_of(push_, message));
  if (!encoded) return forward_error(encoded);
  if (owner == self()) {
    own_push_[piece] = *encoded;
  } else {
    send(static_cast<int>(owner), kFirstStage, *encoded, &push_);
  }
  return {};
}

void DirectExchange::keep_unsent() noexcept {
  if (!is_prepared_) return;
  const std::size_t whole_rounds = is_pushing() ? opened_ - 1 : opened_;
  for (std::size_t piece = whole_rounds; piece < round_bytes_.size(); ++piece) {
    for (std::size_t place = piece < opened_ ? pushed_ : 0; place < ranks(); ++place) {
      const std::size_t owner = push_order(place);
      if (piece >= pieces_[owner]) continue;
      push_.keep(input(owner)[piece].layout(), message_id(rank(), kFirstStage));
    }
  }
}

// The next rank's push of the own piece, which has arrived.
Status DirectExchange::add_push() {
  const std::size_t piece = pulled_[self()];
  const int sender = static_cast<int>(added_);
  const Source source{sender, sender, kFirstStage};
  stage();
  PartMessage& sum = output(self())[piece];
  if (added_ == self()) {
    if (Status added = add(push_, own_push_[piece], sum, source); !added) return added;
    push_.release(own_push_[piece]);
  } else {
    Incoming& push = push_from(added_, piece);
    const Result<Bytes> message = take(push);
    if (!message) return forward_error(message);
    if (Status added = add(push_, std::span(&*message, 1), sum, source); !added) return added;
    push.buffer.reset();
  }
  ++added_;
  return {};
}

Status DirectExchange::share_mean() {
  PartMessage& mean = output(self())[pulled_[self()]];
  sum_up(mean);
  const std::vector<Named> pairs = mean.has_keys() ? mean.filled() : std::vector<Named>{};
  const auto encoded = encode(pull_, mean.has_keys() ? MessageLayout(pairs, mean.hash) : mean.layout(),
                              kSecondStage, mean.has_keys() ? 0 : room_of(pull_, mean));
  if (!encoded) return forward_error(encoded);
  send_to_all(kSecondStage, *encoded, &pull_);
  // The owner applies the bytes that the others get, not the mean that it knows better.
  if (Status applied = replace(pull_, *encoded, mean, {rank(), rank(), kSecondStage}); !applied) {
    return applied;
  }
  if (world() == 1) pull_.release(*encoded);
  added_ = 0;
  note_pulled(self());
  return {};
}

Status DirectExchange::apply_pull(std::size_t owner) {
  Incoming& pull = pull_from(owner, pulled_[owner]);
  const Result<Bytes> message = take(pull);
  if (!message) return forward_error(message);
  stage();
  const int sender = static_cast<int>(owner);
  const Status applied =
      replace(pull_, std::span(&*message, 1), output(owner)[pulled_[owner]], {sender, sender, kSecondStage});
  if (!applied) return applied;
  pull.buffer.reset();
  note_pulled(owner);
  return {};
}

void DirectExchange::note_pulled(std::size_t owner) {
  ++pulled_[owner];
  std::size_t end = opened_;
  for (std::size_t each = 0; each < ranks(); ++each) {
    if (pulled_[each] < pieces_[each]) end = std::min(end, pulled_[each]);
  }
  if (end > closed_) close_rounds(end);
  release_sent();
}

void DirectExchange::close_rounds(std::size_t end) noexcept {
  for (; closed_ < end; ++closed_) window_->close(round_bytes_[closed_]);
}

// kNone: none, or it is here already.
Handle DirectExchange::awaited_push() const {
  if (!has_next(self()) || added_ == self() || added_ == ranks()) return Handle::kNone;
  return incoming_handle(2 * (pulled_[self()] * ranks() + added_));
}

Result<Progress> DirectExchange::move() {
  const auto moved = [](const Status& status) -> Result<Progress> {
    if (!status) return forward_error(status);
    return Progress::moved();
  };
  if (is_pushing()) return moved(push_next());
  if (may_open()) {
    open_round();
    return Progress::moved();
  }
  if (closed_ == round_bytes_.size()) return all_decoded();
  if (has_next(self())) {
    if (added_ == ranks()) return moved(share_mean());
    if (added_ == self() || arrived(push_from(added_, pulled_[self()]))) return moved(add_push());
  }
  for (std::size_t place = 0; place + 1 < ranks(); ++place) {
    const std::size_t owner = push_order(place);
    if (has_next(owner) && arrived(pull_from(owner, pulled_[owner]))) return moved(apply_pull(owner));
  }
  return Progress::waits(awaited_push());
}

void DirectExchange::more_awaited(std::vector<Handle>& handles) const {
  for (std::size_t place = 0; place + 1 < ranks(); ++place) {
    const std::size_t owner = push_order(place);
    if (has_next(owner)) handles.push_back(incoming_handle(2 * (pulled_[owner] * ranks() + owner) + 1));
  }
}

}  // namespace

std::unique_ptr<BucketExchange> make_direct_exchange(BufferPool& pool, const DirectChannels& channels,
                                                     const MostElements& most,
                                                     std::shared_ptr<PieceWindow> window) {
  return std::make_unique<DirectExchange>(pool, channels.push, channels.pull, most, std::move(window));
}

}  // namespace deltawire
