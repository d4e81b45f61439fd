// The means of a bucket's parts, formed message by message: dense ones in staging memory, those in key-value
// form as lists, which are joined to one for each tensor when all have come. For `direct` and `gather`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/tensor.h"
#include "reduce/bucket_run.h"
#include "reduce/bucket_tensors.h"
#include "reduce/patterns/message_plan.h"

namespace deltawire {

// The sum of key-value tensors: sorted lists merged into one, at the speed of memory.
//
// A merge by comparisons asks at each pair which list comes next, which no processor can guess. Here a window
// of keys is laid out flat: each list's pairs are added where their keys say, list after list, bits say which
// keys were seen, and the bits, read in order, are the merged list. So a pair costs two short loops without a
// branch that depends on data, however many lists there are.

// A list that stays where it is. Its keys grow strictly.
struct PairStream {
  PairStream(const Pairs& list) noexcept  // NOLINT(google-explicit-constructor)
      : keys(list.keys.data()), values(list.values.data()), count(list.keys.size()) {}

  const std::uint32_t* keys;
  const float* values;
  std::size_t count;
};

// Holds the memory that merging takes, 1.2 MB at most, from the first merge on. Thread rule: one thread at a
// time.
class PairMerger {
 public:
  // sum = the sum of all streams, a key's values added in the order of streams, in float32; a key that only
  // one has keeps its value, bit for bit. The dimension of `sum` stays as it is, and its memory is of no
  // stream. REQUIRES: the floating-point mode of FloatEnvironment.
  void merge(std::span<const PairStream> streams, Pairs& sum);

 private:
  void make_room(std::uint64_t keys);
  void lay_out(std::uint64_t begin, std::uint64_t end);
  void take_up(std::uint64_t begin, std::uint64_t end, Pairs& sum);
  void hand_over(Pairs& sum);

  std::vector<PairStream> left_;       // of the streams
  std::vector<float> window_;          // by key; -0 where none was seen, since -0 + x is x for every x
  std::vector<std::uint64_t> seen_;    // bits: a key of the window
  std::vector<std::uint64_t> groups_;  // bits: a word of seen_ that isn't 0
  std::vector<std::uint32_t> keys_;    // merged, not yet in the sum
  std::vector<float> values_;
  std::size_t merged_ = 0;
  bool is_clean_ = true;  // no merge has ended midway, for want of memory
};

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
