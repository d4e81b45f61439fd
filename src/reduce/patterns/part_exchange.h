// What `direct` and `gather` share: a bucket's tensors are cut into parts, which travel whole in messages of
// bounded size, dense ones first and then those in key-value form. The means of dense parts are formed in
// staging memory, those of key-value parts as lists, which are put together when all have come.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reduce/bucket_exchange.h"
#include "reduce/patterns/key_partition.h"
#include "reduce/patterns/merge_pairs.h"
#include "reduce/patterns/owners.h"
#include "reduce/patterns/part_messages.h"

namespace deltawire {

class PartExchange : public BucketExchange {
 public:
  std::uint64_t digest(std::uint64_t seed) const override;
  bool finite() const override;
  Status check_range() const override;
  void publish() override;

 protected:
  PartExchange(BufferPool& pool, const MostElements& most) : BucketExchange(pool), most_(most) {}

  // How many lists of messages the parts are sorted into, by OwnedRange::owner; and of which of them this
  // rank forms the mean.
  virtual std::size_t list_count() const = 0;
  virtual std::size_t own_list() const = 0;
  // The parts of a tensor, in order; of one in key-value form those of its partition.
  virtual std::vector<OwnedRange> ranges_of(const Named& tensor) const = 0;
  // How the keys of a tensor in this form go to the ranks.
  virtual KeyPartition key_partition_of(const Named& tensor) const { return {tensor.tensor.elements(), 1}; }

  void plan(bool cut_already) override;
  const MostElements& most() const noexcept { return most_; }

  // The parts as this rank has them, in the caller's memory.
  PartMessages& input(std::size_t list) { return input_[list]; }
  // The same parts, their means. REQUIRES: stage() was called.
  PartMessages& output(std::size_t list) { return output_[list]; }

  // Makes output(), its own list's means 0. Only when the first message is decoded: a bucket that waits needs
  // no staging memory.
  void stage();

  // kLimit where one of the own messages is too long for any transport.
  Status check_bounds(const Channel& channel);
  // The length that a message of these parts may have, whoever sends it.
  std::uint64_t longest(const Channel& channel, const PartMessage& message) const;

  // Decodes a message of another rank's shares and adds them, each divided by the world size; or one of
  // means, which replace what is there.
  Status add(Channel& channel, std::span<const Bytes> message, PartMessage& to, const Source& source) {
    return decode_to(channel, message, to, source, Into::kAccumulate);
  }
  Status replace(Channel& channel, std::span<const Bytes> message, PartMessage& to, const Source& source) {
    return decode_to(channel, message, to, source, Into::kOverwrite);
  }

  // All ranks' shares have been added. Dense means know it, lists are merged by now alone.
  void sum_up(PartMessage& message);

  // Every message has come: joins what belongs to one tensor.
  Progress all_decoded();

 private:
  // A tensor in key-value form.
  struct KeyedTensor {
    struct Place {
      std::size_t list, message, part;
    };
    KeyPartition partition{0, 1};
    PartitionedPairs pairs;     // this rank's
    std::vector<Place> places;  // where the means of its parts are
  };

  void cut(std::vector<PartMessages>& lists, bool is_output);
  void place_dense(std::vector<PartMessages>& lists, bool is_output) noexcept;
  void cut_keyed(std::vector<PartMessages>& lists, bool is_output);
  void join(KeyedTensor& tensor, Pairs& whole);
  std::vector<Pairs>& next_addend(PartMessage& to);
  void merge_addends(PartMessage& message);
  Status decode_to(Channel& channel, std::span<const Bytes> message, PartMessage& to, const Source& source,
                   Into into);

  MostElements most_;
  std::vector<PartMessages> input_;
  std::vector<PartMessages> output_;
  bool is_staged_ = false;
  std::uint64_t dense_elements_ = 0;
  std::vector<std::uint64_t> staged_at_;   // by tensor: where its mean begins, if it is dense
  std::vector<KeyedTensor> keyed_;         // in their order
  std::vector<Pairs> staged_pairs_;        // the means of whole tensors
  std::vector<std::vector<Pairs>> spare_;  // memory of addends that were merged
  std::vector<PairStream> streams_;        // what is merged
  Pairs merged_;
  PairMerger merger_;
};

}  // namespace deltawire
