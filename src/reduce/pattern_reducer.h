// The Reducer of all exchange patterns: steps and their failures, the vote, saved state. A pattern adds its
// channels and its kind of BucketExchange.
#pragma once

#include <cassert>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer_pool.h"
#include "base/spec_text.h"
#include "channel/codec_rules.h"
#include "channel/metered_channel.h"
#include "deltawire/channel.h"
#include "deltawire/reducer.h"
#include "deltawire/workers.h"
#include "reduce/buckets_in_flight.h"
#include "reduce/reducer_state.h"
#include "reduce/wakeable_reducer.h"

namespace deltawire {

// Which tensors in key-value form a reducer takes.
struct PairRules {
  const Reducer& reducer;  // for its spec, in errors
  const Channel& channel;  // that encodes them first
  bool pattern_takes = false;
  bool folds = false;

  bool take(const Named& tensor, std::uint64_t step) const {
    return pattern_takes && channel.takes_pairs(tensor, step);
  }
};

// kInvalidArgument, kUnsupportedDType.
Status check_tensors(const Bucket& bucket, const Step& step, const PairRules& pairs);

struct PatternInfo {
  std::string_view name;  // in specs
  // 8 bytes at the head of a saved state (docs/reference/format.md, "Channel state")
  std::string state_magic;
  bool key_value;                  // takes tensors in this form, where the codec does
  std::size_t channels_saved = 2;  // at most: those after them keep nothing between steps
};

// One or two of one codec, perhaps one of another, and what they share: the meter that counts for them, and
// the threads that code.
struct Channels {
  std::shared_ptr<MemoryMeter> meter;
  std::shared_ptr<Workers> workers;
  std::vector<std::unique_ptr<Channel>> all;
  std::vector<MeteredChannel*> by_spec = {};  // those of them that code by the spec's rules
};

// For Channel::load_weighted.
struct ResizedChannel {
  std::vector<WeightedState> states;
  std::vector<Named> parts;
};

class PatternReducer : public WakeableReducer {
 public:
  std::string spec() const override { return std::string(info_.name) + "(" + channel(0).spec() + ")"; }
  Status begin(const Bucket& bucket, const Step& step, Transport& transport, Deadline deadline) override;
  Result<bool> advance() override;
  Result<Report> finish() override;
  // The transport has failed: so the bucket is encoded, and taken back.
  void keep(const Bucket& bucket, const Step& step, Transport& transport) noexcept override {
    if (options_.revert == Revert::kFold && begin(bucket, step, transport, MachineClock::now()))
      (void)finish();
  }
  std::vector<TensorUse> explain(std::span<const Named> tensors, std::uint64_t step) const override;
  Memory memory() const noexcept override {
    return {meter_->held(MemoryMeter::Use::kResiduals), meter_->held(MemoryMeter::Use::kStaging),
            meter_->held(MemoryMeter::Use::kMessages), meter_->peak()};
  }
  Result<std::vector<std::byte>> save() const override;
  Status load(Bytes state) override;
  Status load_resized(const SavedRanks& saved) override;
  Status recode(const Spec& spec) override;

 protected:
  PatternReducer(PatternInfo info, Channels channels, const ReducerOptions& options)
      : info_(info),
        options_(options),
        meter_(std::move(channels.meter)),
        channels_(std::move(channels.all)),
        by_spec_(std::move(channels.by_spec)),
        pool_(meter_, MemoryMeter::Use::kStaging) {}

  virtual std::unique_ptr<BucketExchange> make_bucket() = 0;
  // To how many ranks this one sent what the channel of that index encoded of a part of the tensor.
  virtual std::uint64_t copies_sent(std::size_t channel, const Named& tensor, const PartUse& part) const = 0;

  // What the channel of that index is to keep of what the saved ranks' channels have kept: the parts are all
  // those of the saved tensors that this rank will encode in it.
  virtual ResizedChannel resized_channel(std::size_t channel, const SavedRanks& saved,
                                         const SavedChannels& channels) const = 0;

  // Called when the channels commit or revert: ends the step of what a pattern keeps besides them.
  virtual void commit_own() noexcept {}
  virtual void revert_own() noexcept {}

  const ReducerOptions& options() const noexcept { return options_; }
  BufferPool& pool() noexcept { return pool_; }
  const std::shared_ptr<MemoryMeter>& meter() const noexcept { return meter_; }
  Channel& channel(std::size_t index) const {
    assert(index < channels_.size());
    return *channels_[index];
  }
  // Ranks of the steps so far, those before load() included; 0 before the first.
  int world() const noexcept { return place_.world; }
  int rank() const noexcept { return place_.rank; }
  std::uint64_t others() const noexcept { return world() < 2 ? 0 : static_cast<std::uint64_t>(world()) - 1; }

 private:
  struct Place {
    int world = 0;
    int rank = 0;
    bool stands = false;  // by a step that counts, or a loaded state; else the open step's
  };

  Status check(const Bucket& bucket, const Step& step, const Transport& transport);
  PairRules pair_rules() const {
    return {*this, channel(0), info_.key_value, options_.revert == Revert::kFold};
  }
  Status vote_and_drain(BucketExchange& last);
  void end_step() noexcept;
  // Ends a step that failed: aborts the transport, frees the memory, reverts.
  tl::unexpected<Error> give_up(Transport& transport, Error error) noexcept;
  void take_place(int world, int rank) noexcept;

  PatternInfo info_;
  ReducerOptions options_;
  std::shared_ptr<MemoryMeter> meter_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<MeteredChannel*> by_spec_;  // among them
  BufferPool pool_;                       // before the buckets, which use it
  BucketsInFlight in_flight_;
  std::uint64_t digest_ = 0;
  bool finite_ = true;  // the open step's means so far
  Place place_;
};

// The random numbers of a pattern's channels: a rank that codes a part in both of them draws others in each.
std::uint64_t channel_seed(std::uint64_t seed, std::size_t channel) noexcept;

// One more channel of a pattern, with the options' policy.
Result<MeteredChannel*> add_channel(Channels& channels, std::string_view codecs,
                                    const ReducerOptions& options, Revert revert, bool means);

// The channels of a pattern: one for each of `reverts`, of which those after the first are for means.
Result<Channels> make_channels(std::string_view codecs, const ReducerOptions& options,
                               std::initializer_list<Revert> reverts);

// Of a pattern that sends `sums` of gradients, such as "ring(3lc)": kInvalidArgument for what is of a rank's
// own gradients, a folding revert and rules of feedback.
Status check_for_sums(const std::string& spec, const std::string& sums, const CodecRules& rules,
                      const ReducerOptions& options);

// A pattern's parameter; nothing where it is not given. kInvalidArgument but for 1 to `most`.
Result<std::optional<int>> count_parameter(const ParsedSpec& pattern, std::string_view key, int most);

}  // namespace deltawire
