// `direct`: each part has one owner rank. Ranks push their compressed parts to the owners; an owner decodes
// them in rank order into the mean, compresses that once (with a residual of its own), and all pull the same
// bytes: 3LC's parameter server with its shared pull (section 3), spread over the workers. Two encodings,
// whatever the number of ranks.
//
// MessagePlan says which parts make which message of an owner's share, DirectRounds when a piece of it may
// leave. A piece is a message. A device takes about as long for a message as for all of a bucket, so there it
// is all that an owner has: one round, whose pushes are encoded together, and no window. As in `gather`, all
// messages of the buckets in flight are then in memory.
//
// Where all ranks share memory, means of dense tensors lie there (SharedValues), and are read where their
// owners put them. Where all that a bucket sends is values, so do pushes: all of a piece are then summed up
// at once, when the last has arrived.
//
//   start: open the rounds that the window takes
//   move:  open a round: post its receives, encode and send its pushes, one by one; decode this rank's
//   piece's
//          pushes in rank order; encode its mean, send it as the pull; decode another owner's pull
#include "reduce/patterns/direct.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/errors.h"
#include "reduce/bucket_run.h"
#include "reduce/patterns/direct_rounds.h"
#include "reduce/patterns/part_means.h"
#include "reduce/patterns/shared_values.h"

namespace deltawire {
namespace {

// The next messages of a peer in a stage: what it pushes to this rank of a piece, or the means of its own.
struct PeerMessages {
  std::size_t peer = 0;
  std::uint16_t stage = 0;
  std::size_t first = 0;
  std::size_t count = 0;
};

class DirectReceives {
 public:
  // Both outlive it.
  DirectReceives(BucketMessages& messages, BucketRun& run) : messages_(messages), run_(run) {}

  Incoming& at(std::size_t peer, std::uint16_t stage, std::size_t message) {
    return messages_.incoming(number(peer, stage, message));
  }
  // The first that has not arrived; kNone: all are here.
  Handle missing(const PeerMessages& due) const {
    for (std::size_t i = 0; i < due.count; ++i) {
      const Handle handle = messages_.incoming_handle(number(due.peer, due.stage, due.first + i));
      if (!run_.transport().done(handle)) return handle;
    }
    return Handle::kNone;
  }
  // What has arrived, until the next take() or reset().
  Result<PartMeans::Messages> take(const PeerMessages& due) {
    bytes_.clear();
    for (std::size_t i = 0; i < due.count; ++i) {
      ASSIGN_OR_RETURN(bytes_.emplace_back(), messages_.take(at(due.peer, due.stage, due.first + i)));
    }
    taken_.clear();
    for (const Bytes& message : bytes_) taken_.emplace_back(&message, 1);
    return PartMeans::Messages(taken_);
  }
  void reset(const PeerMessages& due) {
    for (std::size_t i = 0; i < due.count; ++i) at(due.peer, due.stage, due.first + i).buffer.reset();
  }

 private:
  std::size_t number(std::size_t peer, std::uint16_t stage, std::size_t message) const noexcept {
    const auto ranks = static_cast<std::size_t>(run_.world());
    return 2 * (message * ranks + peer) + (stage == kFirstStage ? 0 : 1);
  }

  BucketMessages& messages_;
  BucketRun& run_;
  std::vector<Bytes> bytes_;
  std::vector<std::span<const Bytes>> taken_;
};

class DirectExchange final : public BucketExchange {
 public:
  DirectExchange(BufferPool& pool, const DirectChannels& channels, const MostElements& most,
                 std::shared_ptr<PieceWindow> window)
      : BucketExchange(pool, channels.backend),
        push_(channels.push),
        pull_(channels.pull),
        most_(most),
        receives_(messages_, run_),
        means_(run_, tensors_, plan_),
        shared_({run_, messages_, plan_, means_}, channels),
        rounds_(std::move(window)) {}

  Status prepare() override {
    const std::uint64_t step = run_.step().number;
    RETURN_IF_ERROR(plan_.check_bounds(push_, step));
    if (tensors_.is_on_device()) return {};  // no piece waits for the window
    rooms_ = {};
    for (std::size_t owner = 0; owner < ranks(); ++owner) {
      const auto messages = plan_.list(owner);
      for (std::size_t piece = 0; piece < messages.size(); ++piece) {
        const MessageLayout layout = messages[piece].layout();
        RETURN_IF_ERROR(push_.prepare(layout, step));
        // Of pairs what this rank has: nobody knows how many others have, and bounds for all would say
        // nothing.
        const std::uint64_t push_bytes = push_.message_bound(layout, step);
        rounds_.note_push(piece, push_bytes);
        if (messages[piece].has_keys()) continue;
        rooms_.push = std::max(rooms_.push, push_bytes);
        rooms_.pull = std::max(rooms_.pull, pull_.message_bound(layout, step));
      }
    }
    is_prepared_ = true;
    return {};
  }

  Status start(bool is_oldest) override {
    if (!is_prepared_) {
      RETURN_IF_ERROR(prepare());
    }
    while (rounds_.may_open(is_oldest)) {
      open_round();
      while (rounds_.is_pushing()) {
        RETURN_IF_ERROR(push_next());
      }
    }
    return {};
  }

  Result<Progress> move(bool is_oldest) override {
    if (rounds_.is_pushing()) return push_next().map(Progress::moved);
    if (rounds_.may_open(is_oldest)) {
      open_round();
      return Progress::moved();
    }
    if (rounds_.all_closed()) {
      means_.join_pairs();
      return Progress::done();
    }
    Handle awaited = Handle::kNone;
    if (rounds_.has_next(self())) {
      if (added_ == ranks()) return share_mean().map(Progress::moved);
      if (shared_.lends_pushes()) {
        ASSIGN_OR_RETURN(const Handle missing, add_pushes());
        if (missing == Handle::kNone) return Progress::moved();
        awaited = missing;
      } else {
        if (added_ != self()) awaited = receives_.missing(next(added_, kFirstStage));
        if (awaited == Handle::kNone) return add_push().map(Progress::moved);
      }
    }
    for (std::size_t place = 0; place + 1 < ranks(); ++place) {
      const std::size_t owner = rounds_.push_order(place);
      if (!rounds_.has_next(owner)) continue;
      if (receives_.missing(next(owner, kSecondStage)) == Handle::kNone)
        return apply_pull(owner).map(Progress::moved);
    }
    return Progress::waits(awaited);
  }

  void more_awaited(std::vector<Handle>& handles) const override {
    for (std::size_t place = 0; place + 1 < ranks(); ++place) {
      const std::size_t owner = rounds_.push_order(place);
      if (!rounds_.has_next(owner)) continue;
      handles.push_back(receives_.missing(next(owner, kSecondStage)));
    }
  }

  void keep_unsent() noexcept override {
    if (!is_prepared_) return;
    rounds_.each_unpushed([&](const Piece& piece) {
      push_.keep(plan_.message({piece.owner, piece.piece}).layout(),
                 run_.message_id(run_.rank(), kFirstStage));
    });
  }

  void await_reads() noexcept override {
    messages_.await_sent(kFirstStage);
    if (sends_means_) messages_.await_sent(kSecondStage);
  }

  void give_back() noexcept override {
    BucketExchange::give_back();
    shared_.give_back();
  }

 private:
  void plan(bool is_known) override {
    if (is_known) {
      plan_.place(tensors_.all());
      rounds_.restart();
    } else {
      cut();
    }
    rounds_.fit_line(run_.transport().round_trip());
    shared_.open();
    means_.open(self(), shared_.is_on());
    run_.report().raw_bytes = direct_raw_bytes(plan_, tensors_, run_);
    std::size_t sends = 0;
    for (std::size_t owner = 0; owner < ranks(); ++owner) {
      sends += plan_.list(owner).size() * (owner == self() ? ranks() : 1);
    }
    messages_.open(sends);
    is_prepared_ = false;
    sends_means_ = false;
    added_ = 0;
    own_push_.assign(plan_.list(self()).size(), {});
  }

  using Piece = DirectRounds::Piece;
  struct Rooms {  // of the longest dense messages
    std::uint64_t push = 0;
    std::uint64_t pull = 0;
  };

  void cut() {
    const int world = run_.world();
    plan_.cut(tensors_.all(), static_cast<std::size_t>(world), most_,
              [&](const Named& tensor) { return direct_parts(tensor, world, most_); });
    std::vector<std::size_t> pieces;
    pieces.reserve(plan_.lists());
    for (std::size_t owner = 0; owner < plan_.lists(); ++owner) {
      const std::size_t messages = plan_.list(owner).size();
      pieces.push_back(tensors_.is_on_device() ? std::min<std::size_t>(messages, 1) : messages);
    }
    rounds_.plan(self(), std::move(pieces));
  }

  // Where rounds take turns, all dense messages of a kind take the same: each fits into what another leaves.
  std::uint64_t room_of(const Channel& channel, const PartMessage& message) const {
    if (!rounds_.take_turns() || message.has_keys()) return message.longest(channel, run_.step().number);
    return &channel == &push_ ? rooms_.push : rooms_.pull;
  }

  void open_round() {
    const std::size_t round = rounds_.open();
    const auto post = [&](std::size_t peer, const Piece& piece, std::uint16_t stage) {
      if (!rounds_.exists(piece)) return;
      const Channel& channel = stage == kFirstStage ? push_ : pull_;
      std::size_t number = piece.piece;
      for (const PartMessage& message : messages_of(piece)) {
        messages_.post(receives_.at(peer, stage, number++), static_cast<int>(peer), stage,
                       room_of(channel, message));
      }
    };
    for (std::size_t peer = 0; peer < ranks(); ++peer) {
      if (peer == self()) continue;
      post(peer, {self(), round}, kFirstStage);
      post(peer, {peer, round}, kSecondStage);
    }
  }

  // What this rank would push to itself is added as it is.
  bool adds_own_values(const Piece& piece) const {
    if (piece.owner != self() || tensors_.is_on_device()) return false;
    if (shared_.lends_pushes()) return true;
    const MessageLayout own = plan_.message({piece.owner, piece.piece}).layout();
    // mask_sent() asks for all parts of a step, if any part's codec is sparse.
    return push_.sends_values(own, run_.step().number) && !push_.any(&CodecInfo::sparse);
  }

  // The messages of layouts_: all of them on a device, else one.
  Status encode(Channel& channel, std::uint16_t stage, std::uint64_t room, bool in_place) {
    if (tensors_.is_on_device() || !in_place) return run_.encode_all(channel, layouts_, stage, room, coded_);
    assert(layouts_.size() == 1);
    ASSIGN_OR_RETURN(coded_.emplace_back(), run_.encode_in_place(channel, layouts_.front(), stage, room));
    return {};
  }

  // The next piece; on a device all of the round.
  Status push_next() {
    pushed_.clear();
    layouts_.clear();
    coded_.clear();
    // Before a piece is taken: a folding revert keeps what is left or encoded, and nothing else.
    pushed_.reserve(1);
    layouts_.reserve(1);
    coded_.reserve(1);
    std::uint64_t room = 1;
    do {
      const Piece next = rounds_.next_push();
      if (!rounds_.exists(next)) continue;
      pushed_.push_back(next);
      for (const PartMessage& message : messages_of(next)) layouts_.push_back(message.layout());
      if (!tensors_.is_on_device()) room = room_of(push_, messages_of(next).front());
    } while (tensors_.is_on_device() && rounds_.is_pushing());
    if (layouts_.empty() || adds_own_values(pushed_.front())) return {};
    if (shared_.lends_pushes()) {
      ASSIGN_OR_RETURN(const bool lent, shared_.lend_push({pushed_.front().owner, pushed_.front().piece}));
      if (lent) return {};
    }
    const bool in_place = pushed_.front().owner != self();  // what is decoded here is in one piece
    RETURN_IF_ERROR(encode(push_, kFirstStage, room, in_place));
    auto coded = coded_.begin();
    for (const Piece& piece : pushed_) {
      for (std::size_t i = 0; i < messages_of(piece).size(); ++i, ++coded) {
        if (piece.owner == self()) {
          own_push_[piece.piece + i] = *coded;
        } else {
          messages_.send(static_cast<int>(piece.owner), kFirstStage, *coded, &push_);
        }
      }
    }
    return {};
  }

  // Where values are shared: all pushes of this rank's next piece. The first that has not arrived, or kNone.
  Result<Handle> add_pushes() {
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      const Handle missing = rank == self() ? Handle::kNone : receives_.missing(next(rank, kFirstStage));
      if (missing != Handle::kNone) return missing;
    }
    const PartMeans::Place place{self(), rounds_.next_mean(self())};
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      if (rank == self()) continue;
      ASSIGN_OR_RETURN(const auto received, receives_.take(next(rank, kFirstStage)));
      RETURN_IF_ERROR(shared_.read_push(static_cast<int>(rank), received.front().front(), place));
    }
    shared_.begin_own(place);
    RETURN_IF_ERROR(shared_.sum(place));
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      if (rank != self()) receives_.reset(next(rank, kFirstStage));
    }
    added_ = ranks();
    return Handle::kNone;
  }

  // The next rank's push of this rank's piece, which has arrived.
  Status add_push() {
    assert(rounds_.has_next(self()) && added_ < ranks());
    const PartMeans::Place place{self(), rounds_.next_mean(self())};
    const int sender = static_cast<int>(added_);
    const Source source{sender, sender, kFirstStage};
    const PeerMessages due = next(added_, kFirstStage);
    if (added_ == 0 && shared_.is_on()) shared_.begin_own(place);
    if (added_ == self() && adds_own_values({place.list, place.message})) {
      if (Status added = means_.add_own(place); !added) return added;
    } else if (added_ == self()) {
      const auto own = std::span(own_push_).subspan(due.first, due.count);
      RETURN_IF_ERROR(means_.add(push_, own, place, source));
      for (const std::span<const Bytes> message : own) push_.release(message);
    } else {
      ASSIGN_OR_RETURN(const auto pushes, receives_.take(due));
      RETURN_IF_ERROR(means_.add(push_, pushes, place, source));
      receives_.reset(due);
    }
    ++added_;
    return {};
  }

  Status share_mean() {
    assert(rounds_.has_next(self()) && added_ == ranks());
    const PartMeans::Place place{self(), rounds_.next_mean(self())};
    RETURN_IF_ERROR(shared_.lends_pushes() && shared_.has_room() ? shared_.share_sum(place)
                                                                 : encode_mean(place));
    added_ = 0;
    rounds_.note_mean(self());
    messages_.release_sent();
    return {};
  }

  Status encode_mean(const PartMeans::Place& place) {
    layouts_.clear();
    for (const PartMessage& mean : messages_of({self(), place.message}))
      layouts_.push_back(mean.mean_layout());
    const PartMessage& first = plan_.message(place);
    std::uint64_t room = tensors_.is_on_device() ? 1 : room_of(pull_, first);
    std::vector<Named> pairs;
    if (first.has_keys()) {
      means_.sum_up(place);
      pairs = means_.pairs_of(place);
      layouts_.front() = MessageLayout(pairs, first.hash);
      room = 0;
    }
    coded_.clear();
    RETURN_IF_ERROR(encode(pull_, kSecondStage, room, true));
    if (shared_.has_room()) return shared_.share_decoded(place, coded_.front());
    for (const std::span<const Bytes> mean : coded_) messages_.send_to_all(kSecondStage, mean, &pull_);
    // The owner applies the bytes that the others get, not the mean that it knows better.
    if (pull_.sends_values(layouts_.front(), run_.step().number)) {
      sends_means_ = true;
      means_.settle(place);
    } else {
      RETURN_IF_ERROR(means_.replace(pull_, coded_, place, {run_.rank(), run_.rank(), kSecondStage}));
    }
    if (run_.world() == 1) {
      for (const std::span<const Bytes> mean : coded_) pull_.release(mean);
    }
    return {};
  }

  Status apply_pull(std::size_t owner) {
    assert(owner != self() && rounds_.has_next(owner));
    const PeerMessages due = next(owner, kSecondStage);
    ASSIGN_OR_RETURN(const auto pulls, receives_.take(due));
    const int sender = static_cast<int>(owner);
    const PartMeans::Place place{owner, due.first};
    const Bytes first = pulls.front().front();
    RETURN_IF_ERROR(shared_.is_on() && SharedValues::is_note(first)
                        ? shared_.read_mean(sender, first, place)
                        : means_.replace(pull_, pulls, place, {sender, sender, kSecondStage}));
    receives_.reset(due);
    if (shared_.is_on()) shared_.free_push(place);
    rounds_.note_mean(owner);
    messages_.release_sent();
    return {};
  }

  std::size_t self() const noexcept { return static_cast<std::size_t>(run_.rank()); }
  std::size_t ranks() const noexcept { return rounds_.ranks(); }
  // Of an owner's list, from message piece.piece on.
  std::span<const PartMessage> messages_of(const Piece& piece) const {
    const auto list = plan_.list(piece.owner);
    return tensors_.is_on_device() ? list : list.subspan(piece.piece, 1);
  }
  PeerMessages next(std::size_t peer, std::uint16_t stage) const {
    const std::size_t owner = stage == kFirstStage ? self() : peer;
    const std::size_t piece = rounds_.next_mean(owner);
    return {peer, stage, piece, messages_of({owner, piece}).size()};
  }

  Channel& push_;
  Channel& pull_;
  MostElements most_;
  DirectReceives receives_;
  MessagePlan plan_;
  PartMeans means_;
  SharedValues shared_;
  DirectRounds rounds_;
  bool is_prepared_ = false;  // so that a folding revert keeps it
  bool sends_means_ = false;  // where they are staged
  Rooms rooms_;
  std::size_t added_ = 0;                         // ranks whose push of the next own piece was added
  std::vector<std::span<const Bytes>> own_push_;  // by own message: what this rank pushes to itself
  // What is coded together.
  std::vector<Piece> pushed_;
  std::vector<MessageLayout> layouts_;
  std::vector<std::span<const Bytes>> coded_;  // messages, in pieces
};

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
