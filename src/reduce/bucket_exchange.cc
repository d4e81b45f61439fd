#include "reduce/bucket_exchange.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "base/float16.h"
#include "base/float_environment.h"
#include "codecs/spec_string.h"
#include "reduce/vote.h"
#include "wire/hashes.h"

namespace deltawire {

Named part_of(const Named& whole, std::uint64_t first, std::uint64_t count, void* values) {
  Named part{whole.name, {nullptr, count, whole.tensor.dtype}, whole.first + first};
  move_part(part, whole, values);
  if (count == whole.tensor.count) part.tensor.dims = whole.tensor.dims;
  part.elements_of_whole = whole.whole_elements();
  part.dims_of_whole = static_cast<std::uint32_t>(whole.whole_dims());
  part.name_hash = whole.name_hash;
  part.is_transient = whole.is_transient;
  return part;
}

Named staged_part(Named part) noexcept {
  part.summed_dtype = part.own_dtype();
  part.tensor.dtype = DType::kF32;
  return part;
}

void move_part(Named& part, const Named& whole, void* values) noexcept {
  const std::uint64_t skipped = part.first - whole.first;
  const float* significance = whole.tensor.significance;
  const std::uint64_t skipped_bytes = skipped * dtype_bytes(part.tensor.dtype);
  part.tensor.values = values == nullptr ? nullptr : static_cast<std::byte*>(values) + skipped_bytes;
  part.tensor.significance = significance == nullptr ? nullptr : significance + skipped;
}

void BucketExchange::open(const Bucket& bucket, const Step& step, Transport& transport, Deadline deadline,
                          std::uint16_t round) {
  step_ = step;
  round_ = round;
  transport_ = &transport;
  deadline_ = deadline;
  time_allowed_ = deadline - Clock::now();
  report_ = Report{};
  if (step.timed) report_.spans.reserve(Report::kSpansMax);
  complete_ = false;
  goes_first_ = false;
  sends_.clear();
  const bool cut_already = tensors_.assign(bucket.tensors) && !bucket.tensors.empty();
  pair_means_ = bucket.pair_means;
  for (const Named& tensor : bucket.tensors) report_.element_count += tensor.tensor.elements();
  plan(cut_already);
}

std::uint64_t BucketExchange::digest(std::uint64_t seed) const {
  return digest64(std::as_bytes(staged()), seed);
}

double sum_of_squares(std::span<const float> values) noexcept {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

bool all_finite(std::span<const float> values) noexcept {
  constexpr std::uint32_t kExponent = 0x7F800000;
  constexpr std::size_t kBlock = 4096;
  for (; !values.empty(); values = values.subspan(std::min(kBlock, values.size()))) {
    std::uint32_t found = 0;
    for (const float value : values.first(std::min(kBlock, values.size()))) {
      found |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent ? 1U : 0U;
    }
    if (found != 0) return false;
  }
  return true;
}

bool BucketExchange::finite() const {
  return all_finite(staged());
}

std::uint64_t BucketExchange::raw_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Named& tensor : tensors_.all()) {
    bytes += tensor.tensor.elements() * dtype_bytes(tensor.tensor.dtype);
  }
  return bytes;
}

Status BucketExchange::check_range(const Named& tensor, std::span<const float> means) {
  const std::uint64_t beyond = first_beyond(means, tensor.tensor.dtype);
  if (beyond == means.size()) return {};
  return fail(ErrorCode::kRange, "tensor '" + std::string(tensor.name) + "': a mean is " +
                                     number_text(means[beyond]) + ", beyond the largest " +
                                     std::string(dtype_name(tensor.tensor.dtype)) +
                                     "; scale the input down, take a wider dtype, or let such steps pass "
                                     "(nonfinite)");
}

Status BucketExchange::check_range() const {
  std::uint64_t at = 0;
  for (const Named& tensor : tensors_.all()) {
    if (tensor.tensor.has_keys()) continue;
    if (Status fits = check_range(tensor, staged().subspan(at, tensor.tensor.count)); !fits) return fits;
    at += tensor.tensor.count;
  }
  return {};
}

void BucketExchange::publish() {
  const FloatEnvironment environment;  // which rounding to 16 bits takes
  std::uint64_t at = 0;
  for (const Named& tensor : tensors_.all()) {
    if (tensor.tensor.count == 0 || tensor.tensor.has_keys()) continue;
    narrow(staged().data() + at, tensor.tensor.count, tensor.tensor.dtype, tensor.tensor.values);
    at += tensor.tensor.count;
  }
}

void BucketExchange::give_back() noexcept {
  staging_.reset();
  for (Incoming& receive : receives_) receive.buffer.reset();
}

void BucketExchange::drain() noexcept {
  const Stopwatch timer(report_, Stopwatch::Phase::kExchange);
  for (Incoming& receive : receives_) await_end(receive.handle);
  for (Sent& sent : sends_) await_end(sent.handle);
}

// A wait on a transport that has failed returns at once, at worst without memory for the error's text.
void BucketExchange::await_end(Handle& handle) noexcept {
  try {
    if (handle != Handle::kNone) (void)transport_->wait(handle, deadline_);
    // NOLINTNEXTLINE(bugprone-empty-catch): no buffer is used after the failure, told or not.
  } catch (const std::bad_alloc&) {
  }
  handle = Handle::kNone;
}

MessageId BucketExchange::message_id(int encoder, std::uint16_t stage) const {
  return {.step = step_.number,
          .rank = static_cast<std::uint16_t>(encoder),
          .world = static_cast<std::uint16_t>(world()),
          .bucket = static_cast<std::uint16_t>(step_.bucket),
          .stage = static_cast<std::uint16_t>(round_ * kStages + stage),
          .scale = step_.scale};
}

Tag BucketExchange::tag(std::uint16_t stage) const noexcept {
  return tag_of(step_, static_cast<std::uint16_t>(round_ * kStages + stage));
}

Incoming& BucketExchange::incoming(std::size_t index) {
  while (receives_.size() <= index) receives_.emplace_back();
  return receives_[index];
}

void BucketExchange::post(Incoming& receive, int peer, std::uint16_t stage, std::uint64_t capacity_bytes) {
  receive.buffer.reset();
  receive.buffer = pool_->take(capacity_bytes);
  receive.handle = transport_->post_recv(peer, tag(stage), receive.buffer.bytes());
}

Result<Bytes> BucketExchange::take(Incoming& receive) {
  const auto length = transport_->wait(std::exchange(receive.handle, Handle::kNone), deadline_);
  if (!length) return forward_error(length);
  return Bytes(receive.buffer.bytes()).first(*length);
}

Status BucketExchange::check_bound(std::uint64_t bound_bytes, std::span<const Named> parts) {
  if (bound_bytes <= kMessageBytesMax) return {};
  return fail(ErrorCode::kLimit, "the message that begins with '" + std::string(parts.front().name) +
                                     "' may have " + std::to_string(bound_bytes) +
                                     " bytes, but a message has at most " + std::to_string(kMessageBytesMax) +
                                     "; split the tensor");
}

Handle BucketExchange::send(int peer, std::uint16_t stage, std::span<const Bytes> pieces, Channel* from) {
  for (const Bytes piece : pieces) report_.bytes_sent += piece.size();
  sends_.push_back({Handle::kNone, from, pieces});  // first: a send that is posted must be known
  sends_.back().handle = transport_->post_send(peer, tag(stage), pieces);
  return sends_.back().handle;
}

// Everybody starts with another receiver, so that no rank is flooded first.
void BucketExchange::send_to_all(std::uint16_t stage, std::span<const Bytes> pieces, Channel* from) {
  for (int i = 1; i < world(); ++i) send((rank() + i) % world(), stage, pieces, from);
}

// A message goes to one rank or to all; its memory is free when the last copy is sent.
void BucketExchange::release_sent() noexcept {
  auto kept = sends_.begin();
  for (auto first = sends_.begin(); first != sends_.end();) {
    const auto end = std::find_if(first, sends_.end(), [&](const Sent& other) {
      return other.message.data() != first->message.data();
    });
    const bool all_sent = first->from != nullptr && std::all_of(first, end, [&](const Sent& sent) {
                            return transport_->done(sent.handle);
                          });
    if (all_sent) {
      first->from->release(first->message);
      for (; first != end; ++first) await_end(first->handle);
    } else {
      kept = std::move(first, end, kept);
      first = end;
    }
  }
  sends_.erase(kept, sends_.end());
}

Result<std::span<const Bytes>> BucketExchange::encode(Channel& channel, const MessageLayout& parts,
                                                      std::uint16_t stage, std::uint64_t room) {
  const Stopwatch timer(report_, Stopwatch::Phase::kEncode);
  auto pieces = channel.encode(parts, message_id(rank(), stage), room);
  if (!pieces && pieces.error().code == ErrorCode::kNotFinite) {
    pieces.error().message += "; mend the input, or let such steps pass (nonfinite)";
  }
  return pieces;
}

tl::unexpected<Error> BucketExchange::blame(int sender, const Error& error) {
  return fail(error.code, "from rank " + std::to_string(sender) + ": " + error.message, sender);
}

Status BucketExchange::decode(Channel& channel, std::span<const Bytes> message, const MessageLayout& parts,
                              const Source& source, Into into, float scale) {
  const Stopwatch timer(report_, Stopwatch::Phase::kDecode);
  const MessageId id = message_id(source.encoder, source.stage);
  if (Status s = channel.decode(message, parts, id, into, scale); !s) return blame(source.sender, s.error());
  return {};
}

}  // namespace deltawire
