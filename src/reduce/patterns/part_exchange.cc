#include "reduce/patterns/part_exchange.h"

#include <algorithm>

#include "base/float_environment.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

// Lists of one part that wait to be merged together: so many at most, whatever the number of ranks.
constexpr std::size_t kMostAddends = 8;

// A part in key-value form, without pairs.
Named empty_part(const Named& tensor, const OwnedRange& range) {
  Named part{tensor.name, {nullptr, 0, tensor.tensor.dtype, nullptr, range.count}, range.first};
  if (range.count == tensor.tensor.dimension) part.tensor.dims = tensor.tensor.dims;
  part.elements_of_whole = tensor.whole_elements();
  part.dims_of_whole = static_cast<std::uint32_t>(tensor.whole_dims());
  part.name_hash = tensor.name_hash;
  return part;
}

}  // namespace

void PartExchange::plan(bool cut_already) {
  is_staged_ = false;
  // Which pairs belong to which part their keys decide, and are others in every step.
  if (cut_already && staged_pairs_.empty()) {
    place_dense(input_, false);
    return;
  }
  output_.clear();
  staged_pairs_.clear();
  staged_at_.clear();
  dense_elements_ = 0;
  for (const Named& tensor : tensors_.all()) {
    staged_at_.push_back(dense_elements_);
    if (tensor.tensor.has_keys()) {
      staged_pairs_.emplace_back().dimension = tensor.tensor.dimension;
    } else {
      dense_elements_ += tensor.tensor.count;
    }
  }
  cut(input_, false);
}

// Of key-value parts the output has no memory yet.
void PartExchange::cut(std::vector<PartMessages>& lists, bool is_output) {
  lists.resize(list_count());
  for (PartMessages& messages : lists) messages.clear();
  const auto list_of = [](const OwnedRange& range) { return static_cast<std::size_t>(range.owner); };
  const std::span<const Named> tensors = tensors_.all();
  for (const Named& tensor : tensors) {
    if (tensor.tensor.has_keys()) continue;
    const auto index = static_cast<std::size_t>(&tensor - tensors.data());
    for (const OwnedRange& range : ranges_of(tensor)) {
      const Named part = part_of(tensor, range.first, range.count, nullptr);
      lists[list_of(range)].add(is_output ? staged_part(part) : part, index, most_.dense);
    }
  }
  place_dense(lists, is_output);
  cut_keyed(lists, is_output);
  // A layout is the tensors' own: ranks must agree on their dtypes, not on what means are formed in.
  for (std::size_t i = 0; i < lists.size(); ++i) {
    is_output ? lists[i].take_hashes(input_[i]) : lists[i].hash_layouts();
  }
}

// In the caller's memory or, the means, in staging memory.
void PartExchange::place_dense(std::vector<PartMessages>& lists, bool is_output) noexcept {
  for (PartMessages& messages : lists) {
    for (PartMessage& message : messages) {
      for (std::size_t i = 0; i < message.parts.size() && !message.has_keys(); ++i) {
        const Named& tensor = tensors_.all()[message.tensors[i]];
        void* values = is_output ? staged().data() + staged_at_[message.tensors[i]] : tensor.tensor.values;
        move_part(message.parts[i], tensor, values);
      }
    }
  }
}

void PartExchange::cut_keyed(std::vector<PartMessages>& lists, bool is_output) {
  const std::span<const Named> tensors = tensors_.all();
  keyed_.resize(staged_pairs_.size());
  auto keyed = keyed_.begin();
  for (const Named& tensor : tensors) {
    if (!tensor.tensor.has_keys()) continue;
    KeyedTensor& own = *keyed++;
    own.places.clear();
    if (!is_output) {
      own.partition = key_partition_of(tensor);
      own.pairs.assign(tensor.tensor, own.partition);
    }
    for (const OwnedRange& range : ranges_of(tensor)) {
      const auto list = static_cast<std::size_t>(range.owner);
      Named part = empty_part(tensor, range);
      if (is_output) {
        part = staged_part(part);
      } else {
        own.pairs.take(range, part.tensor);
      }
      lists[list].add(part, static_cast<std::size_t>(&tensor - tensors.data()), most_.pairs);
      own.places.push_back({list, lists[list].size() - 1, lists[list].back().parts.size() - 1});
    }
  }
}

void PartExchange::stage() {
  if (is_staged_) return;
  is_staged_ = true;
  take_staging(dense_elements_);
  if (output_.empty()) {
    cut(output_, true);
  } else {
    place_dense(output_, true);
  }
  for (PartMessage& message : output_[own_list()]) {
    if (message.has_keys()) continue;
    for (const Named& part : message.parts) {
      std::fill_n(static_cast<float*>(part.tensor.values), part.tensor.count, 0.0F);
    }
  }
}

Status PartExchange::check_bounds(const Channel& channel) {
  for (PartMessages& messages : input_) {
    for (const PartMessage& message : messages) {
      if (Status fits = check_bound(channel.message_bound(message.layout(), step().number), message.parts);
          !fits)
        return fits;
    }
  }
  return {};
}

// Nobody knows how many pairs another rank has: at most one for each element, and what a message can take.
std::uint64_t PartExchange::longest(const Channel& channel, const PartMessage& message) const {
  if (!message.has_keys()) return channel.message_bound(message.layout(), step().number);
  std::vector<Named> full = message.parts;
  for (Named& part : full) part.tensor.count = part.tensor.dimension;
  return std::min(channel.message_bound({full, message.hash}, step().number), kMessageBytesMax);
}

Status PartExchange::decode_to(Channel& channel, std::span<const Bytes> bytes, PartMessage& to,
                               const Source& source, Into into) {
  const float scale = into == Into::kAccumulate ? world_scale() : 1.0F;
  if (!to.has_keys()) return decode(channel, bytes, to.layout(), source, into, scale);
  const Stopwatch timer(report(), Stopwatch::Phase::kDecode);
  std::vector<Pairs>& lists = into == Into::kAccumulate ? next_addend(to) : to.means;
  lists.resize(to.parts.size());
  const MessageId id = message_id(source.encoder, source.stage);
  const Status decoded = channel.decode_pairs(bytes, to.layout(), id, scale, lists);
  if (!decoded) return blame(source.sender, decoded.error());
  return {};
}

// Where the next rank's lists come; the ones before are merged where there are many.
std::vector<Pairs>& PartExchange::next_addend(PartMessage& to) {
  if (to.addends.size() == kMostAddends) merge_addends(to);
  if (spare_.empty()) return to.addends.emplace_back();
  to.addends.push_back(std::move(spare_.back()));
  spare_.pop_back();
  return to.addends.back();
}

void PartExchange::sum_up(PartMessage& message) {
  if (message.addends.empty()) return;
  const Stopwatch timer(report(), Stopwatch::Phase::kDecode);
  merge_addends(message);
}

void PartExchange::merge_addends(PartMessage& message) {
  const FloatEnvironment environment;
  for (std::size_t part = 0; part < message.means.size(); ++part) {
    streams_.assign(1, message.means[part]);
    for (const auto& lists : message.addends) streams_.emplace_back(lists[part]);
    merger_.merge(streams_, merged_);
    std::swap(merged_.keys, message.means[part].keys);
    std::swap(merged_.values, message.means[part].values);
  }
  std::ranges::move(message.addends, std::back_inserter(spare_));
  message.addends.clear();
}

Progress PartExchange::all_decoded() {
  for (std::size_t i = 0; i < keyed_.size(); ++i) join(keyed_[i], staged_pairs_[i]);
  return Progress::done();
}

// From the places of the partition to keys, and from shards to one list.
void PartExchange::join(KeyedTensor& tensor, Pairs& whole) {
  const Stopwatch timer(report(), Stopwatch::Phase::kDecode);
  streams_.clear();
  for (const auto& place : tensor.places) {
    PartMessage& message = output_[place.list][place.message];
    Pairs& part = message.means[place.part];
    const std::uint64_t first = message.parts[place.part].first;
    const std::uint32_t shard = tensor.partition.shard_at(first);
    const auto before = static_cast<std::uint32_t>(first - tensor.partition.first(shard));
    if (tensor.partition.shards() > 1) {
      for (std::uint32_t& key : part.keys) key = tensor.partition.key_at({shard, before + key});
    } else if (before > 0) {
      for (std::uint32_t& key : part.keys) key += before;
    }
    streams_.emplace_back(part);
  }
  const FloatEnvironment environment;
  merger_.merge(streams_, whole);
}

std::uint64_t PartExchange::digest(std::uint64_t seed) const {
  seed = BucketExchange::digest(seed);
  for (const Pairs& mean : staged_pairs_) {
    seed = digest64(std::as_bytes(std::span(mean.keys)), seed);
    seed = digest64(std::as_bytes(std::span(mean.values)), seed);
  }
  return seed;
}

Status PartExchange::check_range() const {
  if (Status fits = BucketExchange::check_range(); !fits) return fits;
  auto mean = staged_pairs_.begin();
  for (const Named& tensor : tensors_.all()) {
    if (!tensor.tensor.has_keys()) continue;
    if (Status fits = BucketExchange::check_range(tensor, (mean++)->values); !fits) return fits;
  }
  return {};
}

bool PartExchange::finite() const {
  return BucketExchange::finite() &&
         std::ranges::all_of(staged_pairs_, [](const Pairs& mean) { return all_finite(mean.values); });
}

void PartExchange::publish() {
  BucketExchange::publish();
  std::ranges::move(staged_pairs_, pair_means_.begin());
}

}  // namespace deltawire
