// One bucket on its way through an exchange pattern: what all patterns share. A pattern's own class adds the
// algorithm as a machine that moves by one message at a time and never waits, so that several buckets can be
// in flight and none holds up another.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer_pool.h"
#include "deltawire/channel.h"
#include "deltawire/reducer.h"
#include "deltawire/transport.h"
#include "reduce/own_tensors.h"

namespace deltawire {

// A receive, posted or not.
struct Incoming {
  BufferPool::Buffer buffer;
  Handle handle = Handle::kNone;
};

// Adds the time of its scope to a phase of a report; a span to those that it has room for.
class Stopwatch {
 public:
  using Phase = PhaseSpan::Phase;
  Stopwatch(Report& report, Phase phase) : report_(report), phase_(phase), start_(Clock::now()) {}
  ~Stopwatch() {
    const Clock::time_point end = Clock::now();
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

// What came of one move.
struct Progress {
  enum class Kind : std::uint8_t {
    kMoved,  // something was done; there may be more to do at once
    kWaits,  // nothing can be done before `handle` has ended, or one of more_awaited(); kNone: older buckets
    kDone,   // the means are staged
  };
  Kind kind = Kind::kMoved;
  Handle handle = Handle::kNone;

  static Progress moved() { return {}; }
  static Progress waits(Handle handle) { return {Kind::kWaits, handle}; }
  static Progress done() { return {Kind::kDone, Handle::kNone}; }
};

// Elements [first, first + count) of `whole` as a part whose values lie at `values`, the memory of the whole
// tensor in the caller's or another place. Only all of it has the tensor's dims.
Named part_of(const Named& whole, std::uint64_t first, std::uint64_t count, void* values);

// The same part in staging memory, where means are float32 whatever the tensor is.
Named staged_part(Named part) noexcept;

// The same part of the same tensor, when that lies elsewhere.
void move_part(Named& part, const Named& whole, void* values) noexcept;

// Whether none of them is NaN or infinite.
bool all_finite(std::span<const float> values) noexcept;

// In double, one after another.
double sum_of_squares(std::span<const float> values) noexcept;

class BucketExchange {
 public:
  // The pool outlives the exchange.
  explicit BucketExchange(BufferPool& pool) : pool_(&pool) {}
  virtual ~BucketExchange() = default;
  BucketExchange(const BucketExchange&) = delete;
  BucketExchange& operator=(const BucketExchange&) = delete;

  // Whether the last bucket had these tensors: then opening it again cuts, copies and hashes nothing.
  bool had(std::span<const Named> tensors) const noexcept { return tensors_.same(tensors); }

  // Takes what begin was given; may be a later bucket for this object. Posts and encodes nothing. Exchanges
  // of one bucket that follow each other each have a `round`, and so stages of their own.
  void open(const Bucket& bucket, const Step& step, Transport& transport, Deadline deadline,
            std::uint16_t round = 0);

  // What may fail before anything is encoded; after it keep_unsent() keeps the bucket whole. start() does it,
  // unless it is done.
  virtual Status prepare() { return {}; }

  // Encodes and posts what needs nobody else.
  virtual Status start() = 0;

  // Does at most about one message's work, and does not wait.
  virtual Result<Progress> move() = 0;

  // Adds what can let it go on beside the handle of the move that said that it waits.
  virtual void more_awaited(std::vector<Handle>& handles) const { (void)handles; }

  // All older buckets are complete: this one waits for the memory of none.
  void go_first() noexcept { goes_first_ = true; }

  // Of a step that is reverted: hands what has not been encoded yet to the channel, as if it had been.
  virtual void keep_unsent() noexcept {}

  // The step's digest goes on over the bucket's means.
  virtual std::uint64_t digest(std::uint64_t seed) const;

  // Whether all of the bucket's means are.
  virtual bool finite() const;

  // kRange names the first mean that is beyond what its tensor's dtype can say. Equal on all ranks.
  virtual Status check_range() const;

  // Gives the staged means to the caller, each rounded once to its tensor's dtype. Takes no memory.
  virtual void publish();

  // Gives memory that nobody uses any more to the next bucket: after publish(), and again when the step ends.
  virtual void give_back() noexcept;

  // Waits for everything posted, so that the memory is free. REQUIRES: the transport has failed, or all is
  // received and only sends can be left.
  virtual void drain() noexcept;

  // The dense tensors' means, one tensor after another; empty before the first message is decoded.
  std::span<const float> means() const noexcept { return staging_.floats(); }

  const Step& step() const noexcept { return step_; }
  Transport& transport() const noexcept { return *transport_; }
  Deadline deadline() const noexcept { return deadline_; }
  // The time that the bucket may take begins anew.
  virtual void restart_clock() noexcept { deadline_ = Clock::now() + time_allowed_; }
  Report& report() noexcept { return report_; }
  bool complete() const noexcept { return complete_; }
  void set_complete() noexcept { complete_ = true; }

 protected:
  int rank() const noexcept { return transport_->rank(); }
  int world() const noexcept { return transport_->world_size(); }
  MessageId message_id(int encoder, std::uint16_t stage) const;

  // Called by open: cuts the tensors, unless they are those of the last bucket, whose values lie elsewhere.
  virtual void plan(bool cut_already) = 0;

  // Takes memory for the means of the dense tensors, uninitialized; the pattern says when it needs it.
  std::span<float> take_staging(std::uint64_t elements) {
    staging_ = pool_->take(sizeof(float) * elements);
    return staged();
  }
  // The dense tensors' means, one tensor after another; empty before take_staging().
  std::span<float> staged() const noexcept { return staging_.floats(); }

  // The bucket's messages, where there are two kinds (docs/reference/format.md, "Buckets and stages").
  static constexpr std::uint16_t kFirstStage = 0;
  static constexpr std::uint16_t kSecondStage = 1;
  static constexpr std::uint16_t kStages = 2;

  // Receive number `index` of this bucket. Its memory is taken when it is posted.
  Incoming& incoming(std::size_t index);
  Handle incoming_handle(std::size_t index) const noexcept { return receives_[index].handle; }
  void post(Incoming& receive, int peer, std::uint16_t stage, std::uint64_t capacity_bytes);
  bool arrived(const Incoming& receive) const { return transport_->done(receive.handle); }
  // The message that has arrived, in the receive's buffer.
  Result<Bytes> take(Incoming& receive);

  // Called by plan: the bare bytes of all messages that this rank will send, every copy counted.
  void count_raw_bytes(std::uint64_t bytes) noexcept { report_.raw_bytes = bytes; }
  // Of all tensors of the bucket.
  std::uint64_t raw_bytes() const noexcept;

  // Called by plan, so that it does not depend on others' haste how many sends are noted at one time.
  void expect_sends(std::size_t count) { sends_.reserve(count); }

  // kLimit for a message that no transport takes, before anything is encoded.
  static Status check_bound(std::uint64_t bound_bytes, std::span<const Named> parts);

  // Counts the bytes; the pieces must stay until the step ends or, given the channel that encoded them, until
  // release_sent() finds that they are sent.
  Handle send(int peer, std::uint16_t stage, std::span<const Bytes> pieces, Channel* from = nullptr);
  void send_to_all(std::uint16_t stage, std::span<const Bytes> pieces, Channel* from = nullptr);
  void release_sent() noexcept;

  // Timed encoding (`room`: Channel::encode), and timed decoding whose errors blame `sender`.
  Result<std::span<const Bytes>> encode(Channel& channel, const MessageLayout& parts, std::uint16_t stage,
                                        std::uint64_t room = 0);
  struct Source {
    int sender = 0;   // who handed the bytes to this rank
    int encoder = 0;  // who made them
    std::uint16_t stage = 0;
  };
  // The message is one piece that came in, or an own one in the pieces of Channel::encode.
  Status decode(Channel& channel, std::span<const Bytes> message, const MessageLayout& parts,
                const Source& source, Into into, float scale);
  static tl::unexpected<Error> blame(int sender, const Error& error);

  // Of one tensor's means.
  static Status check_range(const Named& tensor, std::span<const float> means);

  bool goes_first() const noexcept { return goes_first_; }
  float world_scale() const noexcept { return 1.0F / static_cast<float>(world()); }

  OwnTensors tensors_;
  std::span<Pairs> pair_means_;  // where the caller wants those of key-value tensors

 private:
  BufferPool* pool_;
  BufferPool::Buffer staging_;
  struct Sent {
    Handle handle = Handle::kNone;
    Channel* from = nullptr;  // null: the message stays
    std::span<const Bytes> message;
  };
  void await_end(Handle& handle) noexcept;
  Tag tag(std::uint16_t stage) const noexcept;

  Step step_;
  std::uint16_t round_ = 0;
  Transport* transport_ = nullptr;
  Deadline deadline_;
  Clock::duration time_allowed_{};
  Report report_;
  bool complete_ = false;
  bool goes_first_ = false;
  std::deque<Incoming> receives_;  // a deque, so that references stay
  std::vector<Sent> sends_;        // those of a message one after another
};

}  // namespace deltawire
