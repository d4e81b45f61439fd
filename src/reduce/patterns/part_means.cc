#include "reduce/patterns/part_means.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <iterator>
#include <utility>

#include "base/errors.h"
#include "base/float_environment.h"
#include "channel/raw_values.h"

namespace deltawire {

namespace {

constexpr std::uint64_t kWord = 64;
constexpr std::uint64_t kGroup = kWord * kWord;  // keys that a word of groups_ stands for

// A window has 2^12 to 2^18 keys: 16 KiB, in the first cache, to 1 MiB, and enough pairs that its own
// costs do not count.
constexpr std::uint64_t kShortest = kGroup;
constexpr std::uint64_t kLongest = kWord * kGroup;
constexpr std::uint64_t kPairsOfWindow = 2048;

constexpr std::size_t kBuffered = 2 * kGroup;

std::uint64_t window_keys(std::span<const PairStream> streams, std::uint64_t pairs) {
  std::uint64_t first = ~std::uint64_t{0};
  std::uint64_t end = 0;
  for (const PairStream& stream : streams) {
    if (stream.count == 0) continue;
    first = std::min<std::uint64_t>(first, stream.keys[0]);
    end = std::max<std::uint64_t>(end, std::uint64_t{stream.keys[stream.count - 1]} + 1);
  }
  const std::uint64_t keys_of_pairs = (end - first) / std::max<std::uint64_t>(1, pairs / kPairsOfWindow);
  return std::clamp(std::bit_floor(std::max<std::uint64_t>(1, keys_of_pairs)), kShortest, kLongest);
}

}  // namespace

void PairMerger::merge(std::span<const PairStream> streams, Pairs& sum) {
  sum.keys.clear();
  sum.values.clear();
  left_.clear();
  std::size_t pairs = 0;
  std::size_t most = 0;
  for (const PairStream& stream : streams) {
    if (stream.count == 0) continue;
    pairs += stream.count;
    most = std::max(most, stream.count);
    left_.push_back(stream);
  }
  sum.keys.reserve(most);
  sum.values.reserve(most);
  if (left_.size() > 1) {
    const std::uint64_t window = window_keys(left_, pairs);
    make_room(window);
    is_clean_ = false;
    while (left_.size() > 1) {
      std::uint64_t next = ~std::uint64_t{0};
      for (const PairStream& stream : left_) next = std::min<std::uint64_t>(next, stream.keys[0]);
      const std::uint64_t begin = next / window * window;
      lay_out(begin, begin + window);
      take_up(begin, begin + window, sum);
      std::erase_if(left_, [](const PairStream& stream) { return stream.count == 0; });
    }
    hand_over(sum);
    is_clean_ = true;
  }
  for (const PairStream& last : left_) {
    sum.keys.insert(sum.keys.end(), last.keys, last.keys + last.count);
    sum.values.insert(sum.values.end(), last.values, last.values + last.count);
  }
}

void PairMerger::make_room(std::uint64_t keys) {
  if (is_clean_ && window_.size() >= keys) return;
  merged_ = 0;
  window_.assign(std::max<std::size_t>(keys, window_.size()), -0.0F);
  seen_.assign(window_.size() / kWord, 0);
  groups_.assign(window_.size() / kGroup, 0);
  keys_.resize(kBuffered);
  values_.resize(kBuffered);
}

// Adds up what all streams have of these keys.
void PairMerger::lay_out(std::uint64_t begin, std::uint64_t end) {
  assert(end - begin <= window_.size());
  float* const window = window_.data();
  std::uint64_t* const seen = seen_.data();
  std::uint64_t* const groups = groups_.data();
  for (PairStream& stream : left_) {
    std::size_t i = 0;
    for (; i < stream.count && stream.keys[i] < end; ++i) {
      const std::uint64_t at = stream.keys[i] - begin;
      window[at] += stream.values[i];
      seen[at / kWord] |= std::uint64_t{1} << (at % kWord);
      groups[at / kGroup] |= std::uint64_t{1} << (at / kWord % kWord);
    }
    stream.keys += i;
    stream.values += i;
    stream.count -= i;
  }
}

// Takes the pairs out of the window, in the order of keys.
void PairMerger::take_up(std::uint64_t begin, std::uint64_t end, Pairs& sum) {
  assert((end - begin) % kGroup == 0 && (end - begin) / kGroup <= groups_.size());
  for (std::size_t group = 0; group < (end - begin) / kGroup; ++group) {
    if (groups_[group] == 0) continue;
    if (merged_ > kBuffered - kGroup) hand_over(sum);
    std::uint32_t* const keys = keys_.data();
    float* const values = values_.data();
    std::size_t merged = merged_;
    for (std::uint64_t words = std::exchange(groups_[group], 0); words != 0; words &= words - 1) {
      const std::size_t word = kWord * group + static_cast<std::size_t>(std::countr_zero(words));
      for (std::uint64_t bits = std::exchange(seen_[word], 0); bits != 0; bits &= bits - 1) {
        const std::size_t at = kWord * word + static_cast<std::size_t>(std::countr_zero(bits));
        keys[merged] = static_cast<std::uint32_t>(begin + at);
        values[merged] = std::exchange(window_[at], -0.0F);
        ++merged;
      }
    }
    merged_ = merged;
  }
}

void PairMerger::hand_over(Pairs& sum) {
  assert(merged_ <= kBuffered && sum.keys.size() == sum.values.size());
  sum.keys.insert(sum.keys.end(), keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(merged_));
  sum.values.insert(sum.values.end(), values_.begin(),
                    values_.begin() + static_cast<std::ptrdiff_t>(merged_));
  merged_ = 0;
}

namespace {

// Lists of one part that wait to be merged together, at most, whatever the number of ranks.
constexpr std::size_t kMostAddends = 8;

// Sums are formed in the order of ranks.
constexpr int kFirstAdded = 0;

}  // namespace

void PartMeans::open(std::size_t own_list, bool lie_apart) {
  assert(own_list < plan_.lists());
  own_list_ = own_list;
  is_staged_ = false;
  lie_apart_ = lie_apart;
  own_at_ = nullptr;
  sums_.resize(plan_.lists());
  for (std::size_t list = 0; list < sums_.size(); ++list) {
    const std::span<const PartMessage> messages = plan_.list(list);
    sums_[list].resize(messages.size());
    for (std::size_t i = 0; i < messages.size(); ++i) {
      sums_[list][i].means.assign(messages[i].has_keys() ? messages[i].parts.size() : 0, Pairs{});
      sums_[list][i].addends.clear();
    }
  }
}

// Only when the first message is decoded: a bucket that waits needs no staging memory.
Status PartMeans::stage(const Place& place) {
  if (own_at_ != nullptr && place.list == own_list_) {
    plan_.place_means(place, own_at_);
    return {};
  }
  if (lie_apart_) {
    if (!std::exchange(is_staged_, true)) tensors_.stage(false);
    plan_.place_means(tensors_, place);
    return {};
  }
  if (is_staged_) return {};
  is_staged_ = true;
  if (tensors_.is_on_device()) {
    RETURN_IF_ERROR(tensors_.stage_on_device());
    plan_.place_means(tensors_);
    return {};
  }
  tensors_.stage();
  plan_.place_means(tensors_);
  return {};
}

// Before the first rank's values are added: so it happens in the cache. Memory of a device is clear.
void PartMeans::clear(const Place& place) {
  if (tensors_.is_on_device()) return;
  for (const Named& part : plan_.message(place).means) {
    std::fill_n(static_cast<float*>(part.tensor.values), part.tensor.count, 0.0F);
  }
}

void PartMeans::settle(const Place& place) {
  if (tensors_.is_on_device() || plan_.message(place).has_keys()) return;
  if (lie_apart_) return settle_as(place, look_at(place));
  const Stopwatch timer(run_.report(), Stopwatch::Phase::kDecode);
  for (const Named& mean : plan_.message(place).means) tensors_.settle(mean);
}

SeenMeans PartMeans::look_at(const Place& place) const {
  assert(lie_apart_);
  const Stopwatch timer(run_.report(), Stopwatch::Phase::kDecode);
  const PartMessage& message = plan_.message(place);
  SeenMeans seen;
  for (std::size_t i = 0; i < message.means.size(); ++i) {
    seen.add(tensors_.look_at_apart(message.means[i], message.tensors[i]));
  }
  return seen;
}

void PartMeans::settle_as(const Place& place, const SeenMeans& seen) {
  const PartMessage& message = plan_.message(place);
  assert(lie_apart_ && seen.elements == message.elements);
  tensors_.settle_apart(message.means, message.tensors, seen);
  last_seen_ = seen;
}

Status PartMeans::sum(const Place& place, std::span<const Bytes> pushes) {
  RETURN_IF_ERROR(stage(place));
  const PartMessage& message = plan_.message(place);
  const Stopwatch timer(run_.report(), Stopwatch::Phase::kDecode);
  const FloatEnvironment environment;
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < message.parts.size(); ++i) {
    const TensorSlot& own = message.parts[i].tensor;
    addends_.clear();
    for (const Bytes push : pushes) {
      addends_.push_back(push.empty() ? static_cast<const std::byte*>(own.values) : push.data() + before);
    }
    sum_raw_values(addends_, run_.world_scale(),
                   std::span(static_cast<float*>(message.means[i].tensor.values), own.count));
    before += sizeof(float) * own.count;
  }
  return {};
}

Status PartMeans::decode(Channel& channel, Messages messages, const Place& first, const Source& source,
                         Into into) {
  RETURN_IF_ERROR(stage(first));
  if (plan_.message(first).has_keys()) return decode_pairs(channel, messages.front(), first, source, into);
  received_.clear();
  assert(first.message + messages.size() <= plan_.list(first.list).size());
  const bool adds = into == Into::kAccumulate;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Place place{first.list, first.message + i};
    if (adds && source.encoder == kFirstAdded) clear(place);
    received_.push_back({messages[i], plan_.message(place).mean_layout()});
  }
  RETURN_IF_ERROR(run_.decode(channel, received_, source, into, adds ? run_.world_scale() : 1.0F));
  for (std::size_t i = 0; !adds && i < messages.size(); ++i) settle({first.list, first.message + i});
  return {};
}

Status PartMeans::add_own(const Place& place) {
  RETURN_IF_ERROR(stage(place));
  const Stopwatch timer(run_.report(), Stopwatch::Phase::kDecode);
  if (run_.rank() == kFirstAdded) clear(place);
  const FloatEnvironment environment;
  const Target target{Into::kAccumulate, run_.world_scale()};
  const PartMessage& message = plan_.message(place);
  for (std::size_t i = 0; i < message.parts.size(); ++i) {
    const TensorSlot& own = message.parts[i].tensor;
    take_raw_values(std::as_bytes(std::span(static_cast<const float*>(own.values), own.count)),
                    message.means[i].tensor, target);
  }
  return {};
}

Status PartMeans::decode_pairs(Channel& channel, std::span<const Bytes> bytes, const Place& place,
                               const Source& source, Into into) {
  const Stopwatch timer(run_.report(), Stopwatch::Phase::kDecode);
  const bool adds = into == Into::kAccumulate;
  const PartMessage& message = plan_.message(place);
  std::vector<Pairs>& lists = adds ? next_addend(sum_of(place)) : sum_of(place).means;
  lists.resize(message.parts.size());
  const MessageId id = run_.message_id(source.encoder, source.stage);
  const Status decoded =
      channel.decode_pairs(bytes, message.mean_layout(), id, adds ? run_.world_scale() : 1.0F, lists);
  if (!decoded) return blame(source.sender, decoded.error(), run_.transport().names());
  return {};
}

// Where the next rank's lists come. Where there are many already, these are merged first.
std::vector<Pairs>& PartMeans::next_addend(PairSum& sum) {
  assert(sum.addends.size() <= kMostAddends);
  if (sum.addends.size() == kMostAddends) merge_addends(sum);
  if (spare_.empty()) return sum.addends.emplace_back();
  sum.addends.push_back(std::move(spare_.back()));
  spare_.pop_back();
  return sum.addends.back();
}

void PartMeans::sum_up(const Place& place) {
  PairSum& sum = sum_of(place);
  if (sum.addends.empty()) return;
  const Stopwatch timer(run_.report(), Stopwatch::Phase::kDecode);
  merge_addends(sum);
}

void PartMeans::merge_addends(PairSum& sum) {
  const FloatEnvironment environment;
  for (std::size_t part = 0; part < sum.means.size(); ++part) {
    streams_.assign(1, sum.means[part]);
    for (const auto& lists : sum.addends) streams_.emplace_back(lists[part]);
    merger_.merge(streams_, merged_);
    std::swap(merged_.keys, sum.means[part].keys);
    std::swap(merged_.values, sum.means[part].values);
  }
  std::ranges::move(sum.addends, std::back_inserter(spare_));
  sum.addends.clear();
}

std::vector<Named> PartMeans::pairs_of(const Place& place) {
  std::vector<Named> parts = plan_.message(place).means;
  std::vector<Pairs>& means = sum_of(place).means;
  assert(means.size() == parts.size());
  for (std::size_t i = 0; i < means.size(); ++i) {
    parts[i].tensor.values = means[i].values.data();
    parts[i].tensor.keys = means[i].keys.data();
    parts[i].tensor.count = means[i].keys.size();
  }
  return parts;
}

void PartMeans::join_pairs() {
  assert(plan_.keyed().size() == tensors_.pair_means().size());
  for (std::size_t i = 0; i < plan_.keyed().size(); ++i) join(plan_.keyed()[i], tensors_.pair_means()[i]);
}

// From the places of shards to keys, and from the lists of parts to one.
void PartMeans::join(const MessagePlan::KeyedTensor& tensor, Pairs& whole) {
  const Stopwatch timer(run_.report(), Stopwatch::Phase::kDecode);
  streams_.clear();
  for (const MessagePlan::KeyedPart& at : tensor.parts) {
    Pairs& part = sum_of(at.place).means[at.part];
    const std::uint64_t first = plan_.message(at.place).parts[at.part].first;
    const std::uint32_t shard = tensor.keys.shard_at(first);
    const auto before = static_cast<std::uint32_t>(first - tensor.keys.first(shard));
    if (tensor.keys.shards() > 1) {
      for (std::uint32_t& key : part.keys) key = tensor.keys.key_at({shard, before + key});
    } else if (before > 0) {
      for (std::uint32_t& key : part.keys) key += before;
    }
    streams_.emplace_back(part);
  }
  const FloatEnvironment environment;
  merger_.merge(streams_, whole);
}

}  // namespace deltawire
