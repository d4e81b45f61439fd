// The means of a bucket's parts, formed message by message: dense ones in staging memory, those in key-value
// form as lists, which are joined to one for each tensor when all have come. For `direct` and `gather`.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "deltawire/channel.h"
#include "reduce/bucket_run.h"
#include "reduce/bucket_tensors.h"
#include "reduce/patterns/merge_pairs.h"
#include "reduce/patterns/message_plan.h"

namespace deltawire {

class PartMeans {
 public:
  using Place = MessagePlan::Place;

  // All three outlive it.
  PartMeans(BucketRun& run, BucketTensors& tensors, MessagePlan& plan)
      : run_(run), tensors_(tensors), plan_(plan) {}

  // For a new bucket, whose plan is made. This rank sums up the messages of `own_list`. `lie_apart`: means
  // are where place_own() and stand() say, or what is decoded needs memory; all tensors are dense.
  void open(std::size_t own_list, bool lie_apart = false);

  // Where the means of this rank's next message are formed; null: in staging memory.
  void place_own(float* at) noexcept { own_at_ = at; }

  // Messages of a list, from `first` on: one, or more if none is in key-value form.
  using Messages = std::span<const std::span<const Bytes>>;

  // Decodes a rank's messages and adds their values, each divided by the world size.
  Status add(Channel& channel, Messages messages, const Place& first, const Source& source) {
    return decode(channel, messages, first, source, Into::kAccumulate);
  }
  // The same of what this rank gives, where its message sends_values.
  Status add_own(const Place& place);
  // Decodes messages of means, which replace what is there, and settles them.
  Status replace(Channel& channel, Messages messages, const Place& first, const Source& source) {
    return decode(channel, messages, first, source, Into::kOverwrite);
  }
  // The means of a message are here, one behind the other, and stay until the step ends.
  void stand(const Place& place, Bytes means) noexcept {
    plan_.place_means(place, reinterpret_cast<const float*>(means.data()));
  }
  // The means of what all ranks pushed, by rank; nothing: what this rank gives. As if each had been added.
  Status sum(const Place& place, std::span<const Bytes> pushes);
  // The message's means are complete: BucketTensors::settle.
  void settle(const Place& place);
  // The same where they lie apart, as their owner has seen them.
  void settle_as(const Place& place, const SeenMeans& seen);
  // Of the message that settled last.
  const SeenMeans& last_seen() const noexcept { return last_seen_; }

  // After the last rank's add(): lists still have to be merged, dense sums are complete.
  void sum_up(const Place& place);

  // The parts of a message with their means, to be encoded. REQUIRES: the message is in key-value form.
  std::vector<Named> pairs_of(const Place& place);

  // After the last message: joins the lists of each tensor.
  void join_pairs();

 private:
  // Of one message in key-value form, by part.
  struct PairSum {
    std::vector<Pairs> means;
    std::vector<std::vector<Pairs>> addends;  // by rank, in order: what the means lack yet
  };

  PairSum& sum_of(const Place& place) { return sums_[place.list][place.message]; }
  Status stage(const Place& place);
  SeenMeans look_at(const Place& place) const;
  void clear(const Place& place);
  Status decode(Channel& channel, Messages messages, const Place& first, const Source& source, Into into);
  Status decode_pairs(Channel& channel, std::span<const Bytes> bytes, const Place& place,
                      const Source& source, Into into);
  std::vector<Pairs>& next_addend(PairSum& sum);
  void merge_addends(PairSum& sum);
  void join(const MessagePlan::KeyedTensor& tensor, Pairs& whole);

  BucketRun& run_;
  BucketTensors& tensors_;
  MessagePlan& plan_;
  std::size_t own_list_ = 0;
  bool is_staged_ = false;
  bool lie_apart_ = false;
  float* own_at_ = nullptr;
  SeenMeans last_seen_;
  std::vector<const std::byte*> addends_;
  std::vector<std::vector<PairSum>> sums_;  // as the plan's lists
  std::vector<std::vector<Pairs>> spare_;   // memory of addends that were merged
  std::vector<PairStream> streams_;         // what is merged
  Pairs merged_;
  std::vector<ReceivedMessage> received_;
  PairMerger merger_;
};

}  // namespace deltawire
