// `direct` where a device codes: the same messages to the same ranks, but coded a bucket at a time. A device
// takes about as long for a message as for all of a bucket, so there are no rounds, and no window: as in
// `gather`, all messages of the buckets in flight are in memory.
//
//   start: post all receives; encode all pushes, send them
//   move:  decode a rank's pushes, all of them, in rank order; encode all means, send them; decode all means
//   of
//          an owner
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "reduce/bucket_messages.h"
#include "reduce/patterns/direct.h"
#include "reduce/patterns/message_plan.h"
#include "reduce/patterns/part_means.h"

namespace deltawire {
namespace {

using Encoded = std::vector<std::span<const Bytes>>;  // messages, in pieces

class DirectOnDevice final : public BucketExchange {
 public:
  DirectOnDevice(BufferPool& pool, const DirectChannels& channels, const MostElements& most)
      : push_(channels.push),
        pull_(channels.pull),
        most_(most),
        messages_(pool, run_),
        tensors_(pool, channels.backend),
        means_(run_, tensors_, plan_) {}

  void open(const Bucket& bucket, const Step& step, Transport& transport, Deadline deadline,
            std::uint16_t round) override;
  Status start(bool is_oldest) override;
  Result<Progress> move(bool is_oldest) override;
  void more_awaited(std::vector<Handle>& handles) const override;
  void give_back() noexcept override {
    tensors_.give_back();
    messages_.give_back();
  }
  void drain() noexcept override { messages_.drain(); }
  BucketRun& run() noexcept override { return run_; }
  BucketTensors& tensors() noexcept override { return tensors_; }

 private:
  void post_receives();
  Status push();
  Status add_pushes();
  Status share_means();
  Status apply_pulls(std::size_t owner);
  // Those of one rank, which have all arrived.
  Result<std::vector<Bytes>> take_all(std::size_t peer, std::uint16_t stage);
  void reset_all(std::size_t peer, std::uint16_t stage);
  // The first of a peer's messages that has not arrived; kNone: all are here.
  Handle missing(std::size_t peer, std::uint16_t stage) const;

  std::size_t self() const noexcept { return static_cast<std::size_t>(run_.rank()); }
  std::size_t ranks() const noexcept { return plan_.lists(); }
  std::size_t owner_of(std::size_t peer, std::uint16_t stage) const noexcept {
    return stage == kFirstStage ? self() : peer;
  }
  std::size_t pieces(std::size_t peer, std::uint16_t stage) const noexcept {
    return plan_.list(owner_of(peer, stage)).size();
  }
  // Receives of one piece and one peer: what it pushes to this rank, and its mean.
  std::size_t receive_of(std::size_t peer, std::size_t piece, std::uint16_t stage) const noexcept {
    return 2 * (piece * ranks() + peer) + (stage == kFirstStage ? 0 : 1);
  }

  Channel& push_;
  Channel& pull_;
  MostElements most_;
  BucketRun run_;
  BucketMessages messages_;
  BucketTensors tensors_;
  MessagePlan plan_;
  PartMeans means_;
  Encoded own_push_;
  std::size_t added_ = 0;      // ranks whose pushes were added; then the means are shared
  std::vector<bool> applied_;  // by owner: its means are staged
};

void DirectOnDevice::open(const Bucket& bucket, const Step& step, Transport& transport, Deadline deadline,
                          std::uint16_t round) {
  run_.open(step, transport, deadline, round);
  if (tensors_.assign(bucket)) {
    plan_.place(tensors_.all());
  } else {
    const int world = run_.world();
    plan_.cut(tensors_.all(), static_cast<std::size_t>(world), most_,
              [&](const Named& tensor) { return direct_parts(tensor, world, most_); });
  }
  means_.open(self());
  run_.report().element_count = tensors_.elements();
  run_.report().raw_bytes = direct_raw_bytes(plan_, tensors_, run_);
  std::size_t sends = 0;
  for (std::size_t owner = 0; owner < ranks(); ++owner) {
    sends += plan_.list(owner).size() * (owner == self() ? ranks() : 1);
  }
  messages_.open(sends);
  own_push_.clear();
  added_ = 0;
  applied_.assign(ranks(), false);
}

Status DirectOnDevice::start(bool) {
  if (Status legal = plan_.check_bounds(push_, run_.step().number); !legal) return legal;
  post_receives();
  return push();
}

void DirectOnDevice::post_receives() {
  const std::uint64_t step = run_.step().number;
  for (std::size_t peer = 0; peer < ranks(); ++peer) {
    if (peer == self()) continue;
    for (const std::uint16_t stage : {kFirstStage, kSecondStage}) {
      const Channel& channel = stage == kFirstStage ? push_ : pull_;
      for (std::size_t piece = 0; piece < pieces(peer, stage); ++piece) {
        const std::uint64_t room = plan_.message({owner_of(peer, stage), piece}).longest(channel, step);
        messages_.post(messages_.incoming(receive_of(peer, piece, stage)), static_cast<int>(peer), stage,
                       room);
      }
    }
  }
}

// Each rank starts with another owner and ends with itself, so that no owner is flooded first.
Status DirectOnDevice::push() {
  std::vector<MessageLayout> layouts;
  for (std::size_t place = 0; place < ranks(); ++place) {
    for (const PartMessage& message : plan_.list((self() + 1 + place) % ranks())) {
      layouts.push_back(message.layout());
    }
  }
  Encoded encoded;
  if (Status done = run_.encode_all(push_, layouts, kFirstStage, 1, encoded); !done) return done;
  auto next = encoded.begin();
  for (std::size_t place = 0; place + 1 < ranks(); ++place) {
    const std::size_t owner = (self() + 1 + place) % ranks();
    for (std::size_t piece = 0; piece < plan_.list(owner).size(); ++piece) {
      messages_.send(static_cast<int>(owner), kFirstStage, *next++, &push_);
    }
  }
  own_push_.assign(next, encoded.end());
  return {};
}

Handle DirectOnDevice::missing(std::size_t peer, std::uint16_t stage) const {
  for (std::size_t piece = 0; piece < pieces(peer, stage); ++piece) {
    const Handle handle = messages_.incoming_handle(receive_of(peer, piece, stage));
    if (!run_.transport().done(handle)) return handle;
  }
  return Handle::kNone;
}

Result<std::vector<Bytes>> DirectOnDevice::take_all(std::size_t peer, std::uint16_t stage) {
  std::vector<Bytes> taken;
  for (std::size_t piece = 0; piece < pieces(peer, stage); ++piece) {
    const Result<Bytes> message = messages_.take(messages_.incoming(receive_of(peer, piece, stage)));
    if (!message) return forward_error(message);
    taken.push_back(*message);
  }
  return taken;
}

void DirectOnDevice::reset_all(std::size_t peer, std::uint16_t stage) {
  for (std::size_t piece = 0; piece < pieces(peer, stage); ++piece) {
    messages_.incoming(receive_of(peer, piece, stage)).buffer.reset();
  }
}

Encoded whole_messages(const std::vector<Bytes>& messages) {
  Encoded each;
  each.reserve(messages.size());
  for (const Bytes& message : messages) each.emplace_back(&message, 1);
  return each;
}

// The next rank's pushes of this rank's pieces.
Status DirectOnDevice::add_pushes() {
  const int sender = static_cast<int>(added_);
  const Source source{sender, sender, kFirstStage};
  if (added_ == self()) {
    if (Status added = means_.add_all(push_, own_push_, self(), source); !added) return added;
    for (const std::span<const Bytes> message : own_push_) push_.release(message);
  } else {
    const Result<std::vector<Bytes>> pushes = take_all(added_, kFirstStage);
    if (!pushes) return forward_error(pushes);
    Status added = means_.add_all(push_, whole_messages(*pushes), self(), source);
    if (!added) return added;
    reset_all(added_, kFirstStage);
  }
  ++added_;
  return {};
}

Status DirectOnDevice::share_means() {
  std::vector<MessageLayout> layouts;
  for (const PartMessage& mean : plan_.list(self())) layouts.push_back(mean.mean_layout());
  Encoded encoded;
  if (Status done = run_.encode_all(pull_, layouts, kSecondStage, 1, encoded); !done) return done;
  for (const std::span<const Bytes> message : encoded) messages_.send_to_all(kSecondStage, message, &pull_);
  // The owner applies the bytes that the others get, not the mean that it knows better.
  Status applied = means_.replace_all(pull_, encoded, self(), {run_.rank(), run_.rank(), kSecondStage});
  if (!applied) return applied;
  if (run_.world() == 1) {
    for (const std::span<const Bytes> message : encoded) pull_.release(message);
  }
  applied_[self()] = true;
  messages_.release_sent();
  return {};
}

Status DirectOnDevice::apply_pulls(std::size_t owner) {
  const Result<std::vector<Bytes>> pulls = take_all(owner, kSecondStage);
  if (!pulls) return forward_error(pulls);
  const int sender = static_cast<int>(owner);
  Status applied = means_.replace_all(pull_, whole_messages(*pulls), owner, {sender, sender, kSecondStage});
  if (!applied) return applied;
  reset_all(owner, kSecondStage);
  applied_[owner] = true;
  messages_.release_sent();
  return {};
}

Result<Progress> DirectOnDevice::move(bool) {
  const auto moved = [](const Status& status) -> Result<Progress> {
    if (!status) return forward_error(status);
    return Progress::moved();
  };
  Handle awaited = Handle::kNone;
  if (!applied_[self()]) {
    if (added_ == ranks()) return moved(share_means());
    if (added_ != self()) awaited = missing(added_, kFirstStage);
    if (awaited == Handle::kNone) return moved(add_pushes());
  }
  for (std::size_t place = 0; place + 1 < ranks(); ++place) {
    const std::size_t owner = (self() + 1 + place) % ranks();
    if (!applied_[owner] && missing(owner, kSecondStage) == Handle::kNone) return moved(apply_pulls(owner));
  }
  if (std::ranges::all_of(applied_, [](bool applied) { return applied; })) return Progress::done();
  return Progress::waits(awaited);
}

void DirectOnDevice::more_awaited(std::vector<Handle>& handles) const {
  for (std::size_t owner = 0; owner < ranks(); ++owner) {
    if (owner != self() && !applied_[owner]) handles.push_back(missing(owner, kSecondStage));
  }
}

}  // namespace

std::unique_ptr<BucketExchange> make_direct_exchange_on_device(BufferPool& pool,
                                                               const DirectChannels& channels,
                                                               const MostElements& most) {
  return std::make_unique<DirectOnDevice>(pool, channels, most);
}

}  // namespace deltawire
