// What all exchange patterns share: buckets in flight, the step that the vote commits on all ranks or on
// none, failure, and state. A pattern adds its plan and its messages.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/reducer.h"
#include "reduce/bucket.h"

namespace deltawire {

// A name as in specs, and the eight bytes that its saved state begins with (docs/format.md, "Channel state").
struct PatternName {
  std::string_view name;
  std::string_view state_magic;
};

class PatternReducer : public Reducer {
 public:
  std::string spec() const final;
  Status begin(std::span<const Named> tensors, const Step& step, Transport& transport,
               Deadline deadline) final;
  Result<Report> finish() final;
  std::size_t in_flight() const noexcept final { return buckets_.size(); }
  void revert() noexcept final;
  Result<std::vector<std::byte>> save() const final;
  Status load(Bytes state) final;

 protected:
  // One or two channels, in the order in which their states are saved.
  PatternReducer(PatternName pattern, std::vector<std::unique_ptr<Channel>> channels)
      : pattern_(pattern), channels_(std::move(channels)) {}

  // A pattern's own kind of bucket.
  virtual std::unique_ptr<Bucket> make_bucket() const = 0;
  // Cuts the bucket's tensors into the parts of its messages.
  virtual void plan(Bucket& bucket) const = 0;
  // Posts receives, encodes, sends.
  virtual Status start(Bucket& bucket) = 0;
  // Sees the exchange through to the means in bucket.staged (or bucket.pairs); returns their digest, chained
  // to that of the step's buckets before.
  virtual Result<std::uint64_t> complete(Bucket& bucket, std::uint64_t digest) = 0;

  Channel& channel(std::size_t i) { return *channels_[i]; }
  const Channel& channel(std::size_t i) const { return *channels_[i]; }

  // Between checking and starting; `pairs` is where means in key-value form go, or nullptr.
  Status begin_bucket(std::span<const Named> tensors, std::vector<Pairs>* pairs, const Step& step,
                      Transport& transport, Deadline deadline);

  // 0 before the first step.
  int world_seen() const noexcept { return world_; }

  // What a pattern's steps are made of; times and bytes go to the bucket's report.
  static void receive(Bucket& bucket, Incoming& message, int peer, std::uint16_t slice,
                      std::uint64_t capacity);
  static Result<std::uint64_t> wait(Bucket& bucket, Handle& handle);
  static Result<Bytes> wait(Bucket& bucket, Incoming& message);
  static void send(Bucket& bucket, int peer, std::uint16_t slice, std::span<const Bytes> pieces);
  static Result<std::span<const Bytes>> encode(Bucket& bucket, Channel& channel, std::span<const Named> parts,
                                               std::uint16_t slice);
  // `sender` encoded the message; an error blames `blamed`, who sent it here.
  struct Origin {
    int sender = 0;
    int blamed = 0;
    std::uint16_t slice = 0;
  };
  struct Destination {
    std::span<const Named> parts;
    Into into = Into::kOverwrite;
    float scale = 1.0F;
  };
  static Status decode(Bucket& bucket, Channel& channel, Bytes message, const Origin& origin,
                       const Destination& destination);
  static MessageId message_id(const Bucket& bucket, int sender, std::uint16_t slice);
  static Error blame(const Error& error, int rank);
  static Bytes join(Bucket& bucket, std::span<const Bytes> pieces);

 private:
  Status check(std::span<const Named> tensors, bool is_pairs, const Step& step, const Transport& transport);
  std::unique_ptr<Bucket> take_spare();
  Status end_step(Bucket& last);
  tl::unexpected<Error> give_up(Transport& transport, Error error);
  static void drain(Bucket& bucket);

  PatternName pattern_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::deque<std::unique_ptr<Bucket>> buckets_;    // in flight, oldest first
  std::vector<std::unique_ptr<Bucket>> finished_;  // of the open step: their sends may still be under way
  std::vector<std::unique_ptr<Bucket>> spare_;
  std::uint64_t digest_ = 0;
  int world_ = 0;  // what load() brought or begin() saw; 0: nothing yet
  int rank_ = 0;
};

// Adds the time until its end to a sum of seconds.
class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total), start_(Clock::now()) {}
  ~Stopwatch() { total_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& total_;
  Deadline start_;
};

}  // namespace deltawire
