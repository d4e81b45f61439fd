// `direct`: each part has one owner rank. Ranks push their compressed parts to the owners; an owner decodes
// them in rank order into the mean, compresses that once (with a residual of its own), and all pull the same
// bytes: 3LC's parameter server with its shared pull (section 3), spread over the workers. Two encodings,
// whatever the number of ranks.
//
// MessagePlan says which parts make which piece of an owner's share, DirectRounds when a piece may leave.
//
//   start: open the rounds that the window takes
//   move:  open a round: post its receives, encode and send its pushes, one by one; decode this rank's
//   piece's
//          pushes in rank order; encode its mean, send it as the pull; decode another owner's pull
#include "reduce/patterns/direct.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "reduce/bucket_messages.h"
#include "reduce/patterns/direct_rounds.h"
#include "reduce/patterns/message_plan.h"
#include "reduce/patterns/part_means.h"

namespace deltawire {
namespace {

class DirectExchange final : public BucketExchange {
 public:
  DirectExchange(BufferPool& pool, const DirectChannels& channels, const MostElements& most,
                 std::shared_ptr<PieceWindow> window)
      : push_(channels.push),
        pull_(channels.pull),
        most_(most),
        messages_(pool, run_),
        tensors_(pool),
        means_(run_, tensors_, plan_),
        rounds_(std::move(window)) {}

  void open(const Bucket& bucket, const Step& step, Transport& transport, Deadline deadline,
            std::uint16_t round) override;
  Status prepare() override;
  Status start(bool is_oldest) override;
  Result<Progress> move(bool is_oldest) override;
  void more_awaited(std::vector<Handle>& handles) const override;
  void keep_unsent() noexcept override;
  void give_back() noexcept override {
    tensors_.give_back();
    messages_.give_back();
  }
  void drain() noexcept override { messages_.drain(); }
  BucketRun& run() noexcept override { return run_; }
  BucketTensors& tensors() noexcept override { return tensors_; }

 private:
  void cut();
  std::uint64_t room_of(const Channel& channel, const PartMessage& message) const;
  void open_round();
  Status push_next();
  Status add_push();
  Status share_mean();
  Status apply_pull(std::size_t owner);
  Handle awaited_push() const;
  std::size_t self() const noexcept { return static_cast<std::size_t>(run_.rank()); }
  std::size_t ranks() const noexcept { return rounds_.ranks(); }
  // Receives of one piece and one peer: what it pushes to this rank, and its mean.
  std::size_t push_from(std::size_t peer, std::size_t piece) const noexcept {
    return 2 * (piece * ranks() + peer);
  }
  std::size_t pull_from(std::size_t owner, std::size_t piece) const noexcept {
    return 2 * (piece * ranks() + owner) + 1;
  }

  Channel& push_;
  Channel& pull_;
  MostElements most_;
  BucketRun run_;
  BucketMessages messages_;
  BucketTensors tensors_;
  MessagePlan plan_;
  PartMeans means_;
  DirectRounds rounds_;
  bool is_prepared_ = false;     // so that a folding revert keeps it
  std::uint64_t push_room_ = 0;  // of the longest dense message
  std::uint64_t pull_room_ = 0;
  std::size_t added_ = 0;                         // ranks whose push of the next own piece was added
  std::vector<std::span<const Bytes>> own_push_;  // by own piece: this rank's message to itself
};

void DirectExchange::open(const Bucket& bucket, const Step& step, Transport& transport, Deadline deadline,
                          std::uint16_t round) {
  run_.open(step, transport, deadline, round);
  if (tensors_.assign(bucket)) {
    plan_.place(tensors_.all());
    rounds_.restart();
  } else {
    cut();
  }
  means_.open(self());
  run_.report().element_count = tensors_.elements();
  run_.report().raw_bytes = direct_raw_bytes(plan_, tensors_, run_);
  std::size_t sends = 0;
  for (std::size_t owner = 0; owner < ranks(); ++owner) {
    sends += plan_.list(owner).size() * (owner == self() ? ranks() : 1);
  }
  messages_.open(sends);
  is_prepared_ = false;
  added_ = 0;
  own_push_.assign(plan_.list(self()).size(), {});
}

void DirectExchange::cut() {
  const int world = run_.world();
  plan_.cut(tensors_.all(), static_cast<std::size_t>(world), most_,
            [&](const Named& tensor) { return direct_parts(tensor, world, most_); });
  std::vector<std::size_t> pieces;
  pieces.reserve(plan_.lists());
  for (std::size_t owner = 0; owner < plan_.lists(); ++owner) pieces.push_back(plan_.list(owner).size());
  rounds_.plan(self(), std::move(pieces));
}

Status DirectExchange::prepare() {
  const std::uint64_t step = run_.step().number;
  if (Status legal = plan_.check_bounds(push_, step); !legal) return legal;
  push_room_ = 0;
  pull_room_ = 0;
  for (std::size_t owner = 0; owner < ranks(); ++owner) {
    const auto messages = plan_.list(owner);
    for (std::size_t piece = 0; piece < messages.size(); ++piece) {
      const MessageLayout layout = messages[piece].layout();
      if (Status prepared = push_.prepare(layout, step); !prepared) return prepared;
      // Of pairs what this rank has: nobody knows how many others have, and bounds for all would say nothing.
      const std::uint64_t push_bytes = push_.message_bound(layout, step);
      rounds_.note_push(piece, push_bytes);
      if (messages[piece].has_keys()) continue;
      push_room_ = std::max(push_room_, push_bytes);
      pull_room_ = std::max(pull_room_, pull_.message_bound(layout, step));
    }
  }
  is_prepared_ = true;
  return {};
}

// Where rounds take turns, all dense messages of a kind take the same: each fits into what another leaves.
std::uint64_t DirectExchange::room_of(const Channel& channel, const PartMessage& message) const {
  if (!rounds_.take_turns() || message.has_keys()) return message.longest(channel, run_.step().number);
  return &channel == &push_ ? push_room_ : pull_room_;
}

Status DirectExchange::start(bool is_oldest) {
  if (!is_prepared_) {
    if (Status prepared = prepare(); !prepared) return prepared;
  }
  while (rounds_.may_open(is_oldest)) {
    open_round();
    while (rounds_.is_pushing()) {
      if (Status pushed = push_next(); !pushed) return pushed;
    }
  }
  return {};
}

void DirectExchange::open_round() {
  const std::size_t piece = rounds_.open();
  for (std::size_t peer = 0; peer < ranks(); ++peer) {
    if (peer == self()) continue;
    const int from = static_cast<int>(peer);
    if (rounds_.exists({self(), piece})) {
      messages_.post(messages_.incoming(push_from(peer, piece)), from, kFirstStage,
                     room_of(push_, plan_.message({self(), piece})));
    }
    if (rounds_.exists({peer, piece})) {
      messages_.post(messages_.incoming(pull_from(peer, piece)), from, kSecondStage,
                     room_of(pull_, plan_.message({peer, piece})));
    }
  }
}

Status DirectExchange::push_next() {
  const DirectRounds::Piece next = rounds_.next_push();
  if (!rounds_.exists(next)) return {};
  const PartMessage& message = plan_.message({next.owner, next.piece});
  const auto encoded = run_.encode(push_, message.layout(), kFirstStage, room_of(push_, message));
  if (!encoded) return forward_error(encoded);
  if (next.owner == self()) {
    own_push_[next.piece] = *encoded;
  } else {
    messages_.send(static_cast<int>(next.owner), kFirstStage, *encoded, &push_);
  }
  return {};
}

void DirectExchange::keep_unsent() noexcept {
  if (!is_prepared_) return;
  rounds_.each_unpushed([&](const DirectRounds::Piece& piece) {
    push_.keep(plan_.message({piece.owner, piece.piece}).layout(), run_.message_id(run_.rank(), kFirstStage));
  });
}

// The next rank's push of this rank's piece, which has arrived.
Status DirectExchange::add_push() {
  const std::size_t piece = rounds_.next_mean(self());
  const int sender = static_cast<int>(added_);
  const Source source{sender, sender, kFirstStage};
  if (added_ == self()) {
    if (Status added = means_.add(push_, own_push_[piece], {self(), piece}, source); !added) return added;
    push_.release(own_push_[piece]);
  } else {
    Incoming& push = messages_.incoming(push_from(added_, piece));
    const Result<Bytes> message = messages_.take(push);
    if (!message) return forward_error(message);
    Status added = means_.add(push_, std::span(&*message, 1), {self(), piece}, source);
    if (!added) return added;
    push.buffer.reset();
  }
  ++added_;
  return {};
}

Status DirectExchange::share_mean() {
  const PartMeans::Place place{self(), rounds_.next_mean(self())};
  means_.sum_up(place);
  const PartMessage& mean = plan_.message(place);
  const std::vector<Named> pairs = mean.has_keys() ? means_.pairs_of(place) : std::vector<Named>{};
  const auto encoded =
      run_.encode(pull_, mean.has_keys() ? MessageLayout(pairs, mean.hash) : mean.mean_layout(), kSecondStage,
                  mean.has_keys() ? 0 : room_of(pull_, mean));
  if (!encoded) return forward_error(encoded);
  messages_.send_to_all(kSecondStage, *encoded, &pull_);
  // The owner applies the bytes that the others get, not the mean that it knows better.
  Status applied = means_.replace(pull_, *encoded, place, {run_.rank(), run_.rank(), kSecondStage});
  if (!applied) return applied;
  if (run_.world() == 1) pull_.release(*encoded);
  added_ = 0;
  rounds_.note_mean(self());
  messages_.release_sent();
  return {};
}

Status DirectExchange::apply_pull(std::size_t owner) {
  const PartMeans::Place place{owner, rounds_.next_mean(owner)};
  Incoming& pull = messages_.incoming(pull_from(owner, place.message));
  const Result<Bytes> message = messages_.take(pull);
  if (!message) return forward_error(message);
  const int sender = static_cast<int>(owner);
  Status applied = means_.replace(pull_, std::span(&*message, 1), place, {sender, sender, kSecondStage});
  if (!applied) return applied;
  pull.buffer.reset();
  rounds_.note_mean(owner);
  messages_.release_sent();
  return {};
}

// kNone: none, or it is here already.
Handle DirectExchange::awaited_push() const {
  if (!rounds_.has_next(self()) || added_ == self() || added_ == ranks()) return Handle::kNone;
  return messages_.incoming_handle(push_from(added_, rounds_.next_mean(self())));
}

Result<Progress> DirectExchange::move(bool is_oldest) {
  const auto moved = [](const Status& status) -> Result<Progress> {
    if (!status) return forward_error(status);
    return Progress::moved();
  };
  if (rounds_.is_pushing()) return moved(push_next());
  if (rounds_.may_open(is_oldest)) {
    open_round();
    return Progress::moved();
  }
  if (rounds_.all_closed()) {
    means_.join_pairs();
    return Progress::done();
  }
  if (rounds_.has_next(self())) {
    if (added_ == ranks()) return moved(share_mean());
    const auto has_come = [&] {
      return messages_.arrived(messages_.incoming(push_from(added_, rounds_.next_mean(self()))));
    };
    if (added_ == self() || has_come()) return moved(add_push());
  }
  for (std::size_t place = 0; place + 1 < ranks(); ++place) {
    const std::size_t owner = rounds_.push_order(place);
    if (!rounds_.has_next(owner)) continue;
    if (messages_.arrived(messages_.incoming(pull_from(owner, rounds_.next_mean(owner))))) {
      return moved(apply_pull(owner));
    }
  }
  return Progress::waits(awaited_push());
}

void DirectExchange::more_awaited(std::vector<Handle>& handles) const {
  for (std::size_t place = 0; place + 1 < ranks(); ++place) {
    const std::size_t owner = rounds_.push_order(place);
    if (!rounds_.has_next(owner)) continue;
    handles.push_back(messages_.incoming_handle(pull_from(owner, rounds_.next_mean(owner))));
  }
}

}  // namespace

std::uint64_t direct_raw_bytes(const MessagePlan& plan, const BucketTensors& tensors, const BucketRun& run) {
  std::uint64_t owned = 0;
  for (const PartMessage& message : plan.list(static_cast<std::size_t>(run.rank()))) {
    owned += message.raw_bytes();
  }
  return tensors.raw_bytes() - owned + static_cast<std::uint64_t>(run.world() - 1) * owned;
}

std::unique_ptr<BucketExchange> make_direct_exchange(BufferPool& pool, const DirectChannels& channels,
                                                     const MostElements& most,
                                                     std::shared_ptr<PieceWindow> window) {
  return std::make_unique<DirectExchange>(pool, channels, most, std::move(window));
}

}  // namespace deltawire
