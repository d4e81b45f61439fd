#include "reduce/bucket_tensors.h"

#include <array>
#include <string_view>

#include "base/copying.h"
#include "base/float16.h"
#include "base/float_environment.h"
#include "base/values.h"
#include "codecs/spec_string.h"
#include "reduce/vote.h"

namespace deltawire {

namespace {

constexpr std::size_t kMostListed = std::size_t{1} << 20;  // bytes
constexpr std::uint16_t kListStage = 65535;                // which no message of a bucket has

// Of another rank's list, of which the first line is empty, as of this one's.
Status compare(std::string_view own, std::string_view theirs, const Transport& transport, int peer) {
  if (own == theirs) return {};
  const std::string here = " on " + transport.names().of(transport.rank());
  const std::string there = " on " + transport.names().of(peer);
  return mismatch(first_difference({own.substr(1), here},
                                   {theirs.substr(std::min<std::size_t>(1, theirs.size())), there}) +
                      "; give all ranks the same names, shapes and dtypes in the same order",
                  peer);
}

}  // namespace

void compare_tensors(std::span<const Named> tensors, const Step& step, Transport& transport,
                     Deadline deadline) {
  std::string own = "\n";  // sent until all are waited for
  std::vector<Handle> sent;
  const Status alike = or_no_memory("comparing tensors", [&]() -> Status {
    for (std::size_t i = 0; i < tensors.size(); ++i) own += in_words(tensors.subspan(i, 1)) + "\n";
    own.resize(std::min(own.size(), kMostListed));
    std::string theirs(kMostListed, '\0');
    sent.reserve(static_cast<std::size_t>(transport.world_size()));
    transport.arrive(step.number);
    const Bytes bytes = std::as_bytes(std::span(own));
    const Tag tag = tag_of(step, kListStage);
    for (int peer = 0; peer < transport.world_size(); ++peer) {
      if (peer != transport.rank()) sent.push_back(transport.post_send(peer, tag, {&bytes, 1}));
    }
    for (int peer = 0; peer < transport.world_size(); ++peer) {
      if (peer == transport.rank()) continue;
      const Handle handle = transport.post_recv(peer, tag, std::as_writable_bytes(std::span(theirs)));
      const auto got = transport.wait(handle, deadline);
      if (!got) return forward_error(got);
      RETURN_IF_ERROR(compare(own, std::string_view(theirs).substr(0, *got), transport, peer));
    }
    return {};
  });
  if (!alike) transport.abort(alike.error());
  for (const Handle handle : sent) (void)transport.wait(handle, deadline);
}

namespace {

tl::unexpected<Error> beyond_range(const Named& tensor, float mean) {
  return tl::unexpected<Error>(
      {.code = ErrorCode::kRange,
       .message = printable_line("tensor '" + std::string(tensor.name) + "': a mean is " + number_text(mean) +
                                 ", beyond the largest " + std::string(dtype_name(tensor.tensor.dtype)) +
                                 "; scale the input down, or take a wider dtype"),
       .tensor = std::string(tensor.name),
       .advice = "or let such steps pass (nonfinite)"});
}

Status check_range_of(const Named& tensor, std::span<const float> means) {
  const std::uint64_t beyond = first_beyond(means, tensor.tensor.dtype);
  if (beyond == means.size()) return {};
  return beyond_range(tensor, means[beyond]);
}

// Nobody reads large means again before they have left the caches.
void publish_one(std::span<const float> means, const TensorSlot& tensor, bool past_caches) noexcept {
  constexpr std::size_t kBlock = 4096;
  std::array<std::uint16_t, kBlock> halves;
  auto* to = static_cast<std::byte*>(tensor.values);
  if (tensor.dtype == DType::kF32) {
    const Bytes from = std::as_bytes(means);
    past_caches ? copy_streamed(to, from.data(), from.size()) : copy_cached(to, from.data(), from.size());
    return;
  }
  if (!past_caches) {
    narrow(means.data(), means.size(), tensor.dtype, to);
    return;
  }
  for (; !means.empty(); means = means.subspan(std::min(kBlock, means.size()))) {
    const auto block = means.first(std::min(kBlock, means.size()));
    narrow(block.data(), block.size(), tensor.dtype, halves.data());
    const Bytes from = std::as_bytes(std::span(halves).first(block.size()));
    copy_streamed(to, from.data(), from.size());
    to += from.size();
  }
}

}  // namespace

bool BucketTensors::assign(const Bucket& bucket) {
  pair_targets_ = bucket.pair_means;
  settled_ = {};
  apart_.clear();
  if (tensors_.assign(bucket.tensors) && !bucket.tensors.empty()) return true;
  begins_.clear();
  pair_means_.clear();
  dense_elements_ = 0;
  for (const Named& tensor : all()) {
    begins_.push_back(dense_elements_);
    if (tensor.tensor.has_keys()) {
      pair_means_.emplace_back().dimension = tensor.tensor.dimension;
    } else {
      dense_elements_ += tensor.tensor.count;
    }
  }
  return false;
}

std::uint64_t BucketTensors::elements() const noexcept {
  std::uint64_t elements = 0;
  for (const Named& tensor : all()) elements += tensor.tensor.elements();
  return elements;
}

std::uint64_t BucketTensors::raw_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Named& tensor : all()) bytes += tensor.tensor.elements() * dtype_bytes(tensor.tensor.dtype);
  return bytes;
}

Status BucketTensors::stage_on_device() {
  assert(backend_ != nullptr);
  if (dense_elements_ == 0) return {};
  ASSIGN_OR_RETURN(on_device_, backend_->allocate(dense_elements_));
  return {};
}

Status BucketTensors::load_on_device(float factor) {
  if (dense_elements_ == 0) return {};
  RETURN_IF_ERROR(stage_on_device());
  list_means();
  return backend_->load(to_publish_, factor);
}

void BucketTensors::list_means() {
  to_publish_.clear();
  for (std::size_t i = 0; i < all().size(); ++i) to_publish_.push_back({mean_of(i).data(), all()[i].tensor});
}

Status BucketTensors::examine() {
  if (backend_ == nullptr) return {};
  to_publish_.clear();
  facts_ = {};
  if (!on_device_) return {};  // a bucket without elements
  list_means();
  ASSIGN_OR_RETURN(facts_, backend_->examine(to_publish_));
  return {};
}

void SeenMeans::add(const SeenMeans& more) noexcept {
  elements += more.elements;
  digest += more.digest;
  finite = finite && more.finite;
  in_range = in_range && more.in_range;
}

namespace {

// Of means, or a part of them that begins at `place`.
std::uint64_t digest_of(std::span<const float> part, std::uint64_t place) noexcept {
  return fast_digest64(std::as_bytes(part), place);
}

// A part of a mean, at `place` of all dense ones.
SeenMeans look_at(const Named& mean, std::uint64_t place, bool looks_for_infinities) noexcept {
  assert(mean.tensor.dtype == DType::kF32);
  if (mean.tensor.count == 0) return {};
  const std::span values(static_cast<const float*>(mean.tensor.values), mean.tensor.count);
  return {.elements = values.size(),
          .digest = digest_of(values, place),
          .finite = !looks_for_infinities || all_finite(values),
          .in_range = first_beyond(values, mean.own_dtype()) == values.size()};
}

}  // namespace

void BucketTensors::settle(const Named& mean) noexcept {
  assert(backend_ == nullptr);
  const auto* const values = static_cast<const float*>(mean.tensor.values);
  settled_.add(look_at(mean, static_cast<std::uint64_t>(values - means().data()), looks_for_infinities_));
}

SeenMeans BucketTensors::look_at_apart(const Named& mean, std::size_t tensor) const noexcept {
  return look_at(mean, begins_[tensor] + mean.first - all()[tensor].first, looks_for_infinities_);
}

void BucketTensors::settle_apart(std::span<const Named> means, std::span<const std::size_t> tensors,
                                 const SeenMeans& seen) {
  for (std::size_t i = 0; i < means.size(); ++i) {
    const TensorSlot& mean = means[i].tensor;
    apart_.add({static_cast<const float*>(mean.values), mean.count}, tensors[i],
               means[i].first - all()[tensors[i]].first);
  }
  settled_.add(seen);
}

std::uint64_t BucketTensors::digest(std::uint64_t seed) const {
  assert(backend_ == nullptr || pair_means_.empty());
  if (backend_ != nullptr) return digest64(std::as_bytes(std::span(facts_.sums)), seed);
  const std::uint64_t dense = is_settled() ? settled_.digest : digest_of(means(), 0);
  seed = digest64(std::as_bytes(std::span(&dense, 1)), seed);
  for (const Pairs& mean : pair_means_) {
    seed = digest64(std::as_bytes(std::span(mean.keys)), seed);
    seed = digest64(std::as_bytes(std::span(mean.values)), seed);
  }
  return seed;
}

bool BucketTensors::finite() const {
  if (backend_ != nullptr) return facts_.finite;
  const bool is_known = is_settled() && looks_for_infinities_;
  return (is_known ? settled_.finite : all_finite(means())) &&
         std::ranges::all_of(pair_means_, [](const Pairs& mean) { return all_finite(mean.values); });
}

// Dense tensors first, whatever their order.
Status BucketTensors::check_range() const {
  if (backend_ != nullptr && facts_.beyond != MeanFacts::kNone) {
    return beyond_range(all()[facts_.beyond], facts_.beyond_value);
  }
  if (backend_ != nullptr) return {};
  if (!apart_.empty()) return settled_.in_range ? Status() : apart_.check_range(all());
  for (std::size_t i = 0; i < all().size(); ++i) {
    if (all()[i].tensor.has_keys() || (is_settled() && settled_.in_range)) continue;
    RETURN_IF_ERROR(check_range_of(all()[i], mean_of(i)));
  }
  auto mean = pair_means_.begin();
  for (const Named& tensor : all()) {
    if (!tensor.tensor.has_keys()) continue;
    RETURN_IF_ERROR(check_range_of(tensor, (mean++)->values));
  }
  return {};
}

Status ApartMeans::check_range(std::span<const Named> tensors) const {
  const Part* first = nullptr;
  for (const Part& part : parts_) {
    if (first_beyond(part.mean, tensors[part.tensor].tensor.dtype) == part.mean.size()) continue;
    const auto place = [](const Part& at) { return std::pair(at.tensor, at.before); };
    if (first == nullptr || place(part) < place(*first)) first = &part;
  }
  return first == nullptr ? Status() : check_range_of(tensors[first->tensor], first->mean);
}

void ApartMeans::publish(std::span<const Named> tensors, bool past_caches) const noexcept {
  for (const Part& part : parts_) {
    const TensorSlot& whole = tensors[part.tensor].tensor;
    std::byte* const to = static_cast<std::byte*>(whole.values) + dtype_bytes(whole.dtype) * part.before;
    publish_one(part.mean, {to, part.mean.size(), whole.dtype}, past_caches);
  }
}

void BucketTensors::publish() {
  if (backend_ != nullptr) {
    if (!to_publish_.empty()) backend_->publish(to_publish_);
    return;
  }
  const FloatEnvironment environment;  // which rounding to 16 bits takes
  const bool past_caches = goes_past_caches(sizeof(float) * dense_elements_);
  apart_.publish(all(), past_caches);
  for (std::size_t i = 0; apart_.empty() && i < all().size(); ++i) {
    const TensorSlot& tensor = all()[i].tensor;
    if (tensor.count == 0 || tensor.has_keys()) continue;
    publish_one(mean_of(i), tensor, past_caches);
  }
  assert(pair_means_.size() == pair_targets_.size());
  std::ranges::move(pair_means_, pair_targets_.begin());
}

}  // namespace deltawire
