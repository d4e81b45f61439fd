// One bucket's way through its step: who exchanges it, by when, under which names its messages travel, and
// what it has cost so far.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/buffer_pool.h"
#include "deltawire/channel.h"
#include "deltawire/reducer.h"
#include "deltawire/transport.h"
#include "transport/process/machine.h"

namespace deltawire {

// The bucket's messages, where there are two kinds (docs/reference/format.md, "Buckets and stages").
inline constexpr std::uint16_t kFirstStage = 0;
inline constexpr std::uint16_t kSecondStage = 1;

// Adds the time of its scope to a phase of a report, and a span if the report has room for it.
class Stopwatch {
 public:
  using Phase = PhaseSpan::Phase;
  Stopwatch(Report& report, Phase phase) : report_(report), phase_(phase), start_(MachineClock::now()) {}
  ~Stopwatch() {
    const Clock::time_point end = MachineClock::now();
    total() += std::chrono::duration<double>(end - start_).count();
    if (report_.spans.size() < report_.spans.capacity()) report_.spans.push_back({phase_, start_, end});
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& total() const noexcept {
    if (phase_ == Phase::kEncode) return report_.encode_seconds;
    return phase_ == Phase::kExchange ? report_.exchange_seconds : report_.decode_seconds;
  }

  Report& report_;
  Phase phase_;
  Clock::time_point start_;
};

// Where a message comes from.
struct Source {
  int sender = 0;   // who sent the bytes to this rank
  int encoder = 0;  // who made them
  std::uint16_t stage = 0;
};

// The error of a message, blamed on the rank that sent it.
tl::unexpected<Error> blame(int sender, const Error& error, const RankNames& names);

// About a step that is not finite.
inline constexpr const char* kNotFiniteAdvice = "mend the input, or let such steps pass (nonfinite)";

class BucketRun {
 public:
  // Begins a new bucket. Exchanges of one bucket that follow each other differ in `round`, and so in their
  // stages.
  void open(const Step& step, Transport& transport, Deadline deadline, std::uint16_t round);

  const Step& step() const noexcept { return step_; }
  Transport& transport() const noexcept { return *transport_; }
  int rank() const noexcept { return transport_->rank(); }
  int world() const noexcept { return transport_->world_size(); }
  float world_scale() const noexcept { return 1.0F / static_cast<float>(world()); }
  Report& report() noexcept { return report_; }

  Deadline deadline() const noexcept { return deadline_; }
  // Gives the bucket its whole time again, from now on.
  void restart_clock() noexcept { deadline_ = MachineClock::now() + time_allowed_; }

  Tag tag(std::uint16_t stage) const noexcept;
  MessageId message_id(int encoder, std::uint16_t stage) const;

  // Channel::encode, timed.
  Result<std::span<const Bytes>> encode(Channel& channel, const MessageLayout& parts, std::uint16_t stage,
                                        std::uint64_t room = 0);
  // The same, as Channel::encode_in_place.
  Result<std::span<const Bytes>> encode_in_place(Channel& channel, const MessageLayout& parts,
                                                 std::uint16_t stage, std::uint64_t room);
  Result<std::uint64_t> lend(Channel& channel, const MessageLayout& parts, std::uint16_t stage) const {
    return channel.lend(parts, message_id(rank(), stage));
  }
  // Several messages of one kind, as Channel::encode_all.
  Status encode_all(Channel& channel, std::span<const MessageLayout> messages, std::uint16_t stage,
                    std::uint64_t room, std::vector<std::span<const Bytes>>& encoded);
  // Channel::decode_all, timed; errors blame the sender. A message is one piece that was received, or this
  // rank's own in the pieces of encode.
  Status decode(Channel& channel, std::span<const ReceivedMessage> messages, const Source& source, Into into,
                float scale);

 private:
  std::uint16_t stage_in_step(std::uint16_t stage) const noexcept;

  Step step_;
  std::uint16_t round_ = 0;
  Transport* transport_ = nullptr;
  Deadline deadline_;
  Clock::duration time_allowed_{};
  Report report_;
};

// The messages of one bucket on their way: receives in the memory of a pool, and sends whose memory is
// released when the last copy of a message is sent.

// A receive, posted or not.
struct Incoming {
  BufferPool::Buffer buffer;
  Handle handle = Handle::kNone;
};

class BucketMessages {
 public:
  // Both outlive it.
  BucketMessages(BufferPool& pool, BucketRun& run) : pool_(&pool), run_(&run) {}

  // For a new bucket, with room for this many sends: so the memory doesn't depend on how fast others are.
  void open(std::size_t sends) {
    sends_.clear();
    sends_.reserve(sends);
  }

  // Receive number `index` of this bucket. Its memory is taken when it is posted.
  Incoming& incoming(std::size_t index) {
    while (receives_.size() <= index) receives_.emplace_back();
    return receives_[index];
  }
  Handle incoming_handle(std::size_t index) const noexcept {
    assert(index < receives_.size());
    return receives_[index].handle;
  }
  void post(Incoming& receive, int peer, std::uint16_t stage, std::uint64_t capacity_bytes);
  bool arrived(const Incoming& receive) const { return run_->transport().done(receive.handle); }
  // The message that has arrived, in the receive's buffer.
  Result<Bytes> take(Incoming& receive);

  // Counts the bytes. The pieces must stay until the step ends or, if the channel that encoded them is given,
  // until release_sent() finds that they are sent.
  Handle send(int peer, std::uint16_t stage, std::span<const Bytes> pieces, Channel* from = nullptr);
  void send_to_all(std::uint16_t stage, std::span<const Bytes> pieces, Channel* from = nullptr);
  void release_sent() noexcept;

  // Waits until what was sent of a stage, from memory that is not the channel's, may change.
  void await_sent(std::uint16_t stage) noexcept;

  // Gives the receives' memory to the next bucket.
  void give_back() noexcept {
    for (Incoming& receive : receives_) receive.buffer.reset();
  }

  // Waits for everything posted, so that the memory is free. REQUIRES: the transport has failed, or
  // everything was received and only sends can be left.
  void drain() noexcept;

 private:
  struct Sent {
    Handle handle = Handle::kNone;
    Channel* from = nullptr;  // null: the message stays
    std::uint16_t stage = 0;
    std::span<const Bytes> message;
  };
  void await_end(Handle& handle) noexcept;

  BufferPool* pool_;
  BucketRun* run_;
  std::deque<Incoming> receives_;  // a deque, so that references stay valid
  std::vector<Sent> sends_;        // the copies of a message one after another
};

}  // namespace deltawire
