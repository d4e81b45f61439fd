// The Channel: residuals and the step's transaction around codec, framing and decoding.
#include "deltawire/channel.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <utility>

#include "base/no_memory.h"
#include "channel/channel_state.h"
#include "channel/message_decoder.h"
#include "channel/message_encoder.h"
#include "channel/metered_channel.h"
#include "channel/part_encoder.h"
#include "channel/payload_maker.h"
#include "channel/residual_store.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kMaxTensorElements = std::uint64_t{1} << 32;

constexpr std::uint32_t low_half(std::uint64_t hash) noexcept {
  return static_cast<std::uint32_t>(hash);
}

class ChannelImpl final : public Channel {
 public:
  ChannelImpl(std::unique_ptr<const Codec> codec, std::unique_ptr<const Codec> raw,
              const ChannelOptions& options, std::shared_ptr<MemoryMeter> meter)
      : codec_(std::move(codec)),
        raw_(std::move(raw)),
        options_(options),
        params_hash_(deltawire::params_hash(codec_->spec(), options.policy)),
        state_hash_(deltawire::params_hash(codec_->spec(), Policy{options.policy.min_elements})),
        meter_(std::move(meter)),
        residuals_(meter_),
        payload_maker_(meter_),
        scratch_held_(meter_, MemoryMeter::Use::kMessages),
        encoder_(codecs(), options_, residuals_) {}

  const Codec& codec() const noexcept override { return *codec_; }
  std::uint64_t message_bound(std::span<const Named> parts) const override;
  Result<std::span<const Bytes>> encode(std::span<const Named> parts, const MessageId& id) override;
  Status decode(std::span<const Bytes> pieces, std::span<const Named> parts, const MessageId& expected,
                Into into, float scale) override;
  Status decode_pairs(std::span<const Bytes> pieces, std::span<const Named> parts, const MessageId& expected,
                      float scale, std::span<Pairs> means) override;
  Status mask_sent(std::string_view name, std::uint64_t first, std::span<float> momentum) const override;
  void commit() noexcept override;
  void revert() noexcept override;
  std::span<const float> residual(std::string_view name, std::uint64_t first) const override;
  Result<std::vector<std::byte>> save() const override;
  Status load(Bytes state) override;

 private:
  struct Bounds {
    std::uint64_t payload_bytes = 0;
    std::uint64_t chunks = 0;
    std::uint64_t scratch_bytes = 0;
    std::uint64_t parts = 0;
  };
  // What a fold needs of a part that was encoded in the open step.
  struct StepPart {
    std::string name;
    SentPart sent;
  };

  PartCodecs codecs() const noexcept { return {*codec_, *raw_, options_.policy, options_.error_feedback}; }
  Bounds bounds_of(std::span<const Named> parts) const;
  Status check_encode(std::span<const Named> parts, const MessageId& id) const;
  Result<std::vector<SentPart>> encode_parts(std::span<const Named> parts, float scale, Message& message,
                                             const Bounds& bounds, std::size_t& done);
  Result<std::span<const Bytes>> encode_message(std::span<const Named> parts, const MessageId& id,
                                                std::size_t& done);
  void keep(const Named& unsent, float scale) noexcept;
  void close_step() noexcept;

  std::unique_ptr<const Codec> codec_;
  std::unique_ptr<const Codec> raw_;
  ChannelOptions options_;
  std::uint64_t params_hash_;
  std::uint64_t state_hash_;  // without Policy::nonfinite, which says nothing about residuals
  std::shared_ptr<MemoryMeter> meter_;
  ResidualStore residuals_;
  PayloadMaker payload_maker_;
  bool step_open_ = false;
  std::uint64_t step_ = 0;
  std::deque<Message> messages_;  // of the open step; a deque, so that spans into them stay
  std::vector<StepPart> step_parts_;
  std::deque<Message> committed_messages_;  // of the last committed step, sparse codecs only: for mask_sent
  std::vector<StepPart> committed_parts_;
  std::vector<std::byte> scratch_;
  MeteredBytes scratch_held_;
  PartEncoder encoder_;
};

ChannelImpl::Bounds ChannelImpl::bounds_of(std::span<const Named> parts) const {
  Bounds bounds;
  for (const Named& part : parts) {
    if (part.tensor.elements() == 0) continue;
    const Sizes sizes = codecs().of(part.tensor.elements()).sizes(encoder_.as_encoded(part));
    bounds.payload_bytes += sizes.payload_bytes;
    bounds.chunks += sizes.chunks;
    bounds.scratch_bytes = std::max(bounds.scratch_bytes, sizes.scratch_bytes);
    ++bounds.parts;
  }
  return bounds;
}

std::uint64_t ChannelImpl::message_bound(std::span<const Named> parts) const {
  const Bounds bounds = bounds_of(parts);
  if (bounds.parts == 0) return 0;
  return bounds.payload_bytes + framing_bound(bounds.payload_bytes, bounds.chunks, bounds.parts);
}

Status ChannelImpl::check_encode(std::span<const Named> parts, const MessageId& id) const {
  if (step_open_ && step_ != id.step) {
    return fail(ErrorCode::kState, "step " + std::to_string(step_) +
                                       " is open; commit or revert it before step " +
                                       std::to_string(id.step));
  }
  if (!std::isfinite(id.scale) || id.scale <= 0.0F) {
    return fail(ErrorCode::kInvalidArgument,
                "the scale " + std::to_string(id.scale) + " must be finite and above 0");
  }
  for (const Named& part : parts) {
    if (part.first >= kMaxTensorElements || part.tensor.elements() >= kMaxTensorElements - part.first) {
      return fail(ErrorCode::kLimit,
                  "part '" + std::string(part.name) + "' goes beyond element 2^32; split the tensor");
    }
  }
  return {};
}

// Counts in `done` the parts whose residuals have their input, or need none.
Result<std::vector<SentPart>> ChannelImpl::encode_parts(std::span<const Named> parts, float scale,
                                                        Message& message, const Bounds& bounds,
                                                        std::size_t& done) {
  MutBytes payload(message.payload.get(), bounds.payload_bytes);
  std::span<std::uint32_t> ends(message.chunk_ends);
  std::vector<SentPart> all;
  all.reserve(bounds.parts);
  for (; done < parts.size(); ++done) {
    const Named& part = parts[done];
    if (part.tensor.elements() == 0) continue;
    // Before the residual changes: once it has, nothing may fail that a revert needs.
    step_parts_.push_back({std::string(part.name), {}});
    step_parts_.back().sent.state = SegmentState::kNothing;
    const Result<SentPart> sent = encoder_.encode(part, scale, PartBuffer{payload, ends, scratch_});
    if (!sent) return forward_error(sent);
    payload = payload.subspan(sent->encoded.payload.size());
    ends = ends.subspan(sent->encoded.chunk_ends.size());
    step_parts_.back().sent = *sent;
    all.push_back(*sent);
    all.back().index = static_cast<std::uint32_t>(done);
  }
  const std::byte* before = message.payload.get();
  payload_maker_.close(message, bounds.payload_bytes - payload.size());
  const std::size_t first = step_parts_.size() - all.size();
  for (std::size_t i = 0; i < all.size(); ++i) {
    Bytes& bytes = all[i].encoded.payload;
    if (!bytes.empty()) bytes = Bytes(message.payload.get() + (bytes.data() - before), bytes.size());
    step_parts_[first + i].sent.encoded.payload = bytes;
  }
  return all;
}

Result<std::span<const Bytes>> ChannelImpl::encode_message(std::span<const Named> parts, const MessageId& id,
                                                           std::size_t& done) {
  const Bounds bounds = bounds_of(parts);
  if (scratch_.size() < bounds.scratch_bytes) scratch_.resize(bounds.scratch_bytes);
  scratch_held_.set(scratch_.capacity());
  Message& message = messages_.emplace_back();
  payload_maker_.open(message, bounds.payload_bytes);
  message.chunk_ends.resize(bounds.chunks);
  const Result<std::vector<SentPart>> sent = encode_parts(parts, id.scale, message, bounds, done);
  if (!sent) return forward_error(sent);
  frame_message(*sent, {id, low_half(params_hash_), layout_hash(parts)}, message);
  message.count();
  return std::span<const Bytes>(message.pieces);
}

Result<std::span<const Bytes>> ChannelImpl::encode(std::span<const Named> parts, const MessageId& id) {
  if (Status legal = check_encode(parts, id); !legal) return forward_error(legal);
  step_open_ = true;
  step_ = id.step;
  std::size_t done = 0;
  auto pieces = or_no_memory("encoding a message", [&] { return encode_message(parts, id, done); });
  if (!pieces && options_.revert == Revert::kFold) {
    for (const Named& unsent : parts.subspan(done)) keep(unsent, id.scale);
  }
  return pieces;
}

// A residual that is not there yet, and for which there is no memory, stays unmade.
void ChannelImpl::keep(const Named& unsent, float scale) noexcept {
  (void)or_no_memory("keeping a part", [&]() -> Status {
    encoder_.keep(unsent, scale);
    return {};
  });
}

Status ChannelImpl::decode(std::span<const Bytes> pieces, std::span<const Named> parts,
                           const MessageId& expected, Into into, float scale) {
  const ExpectedMessage due{expected, low_half(params_hash_), layout_hash(parts), parts};
  return decode_message(pieces, due, codecs(), Target{into, scale});
}

Status ChannelImpl::decode_pairs(std::span<const Bytes> pieces, std::span<const Named> parts,
                                 const MessageId& expected, float scale, std::span<Pairs> means) {
  const ExpectedMessage due{expected, low_half(params_hash_), layout_hash(parts), parts};
  return decode_message_to_pairs(pieces, due, codecs(), scale, means);
}

void ChannelImpl::close_step() noexcept {
  step_open_ = false;
  messages_.clear();
  step_parts_.clear();
  payload_maker_.end_step();
  residuals_.forget_step();
}

void ChannelImpl::commit() noexcept {
  if (codec_->info().sparse) {
    committed_messages_.swap(messages_);
    committed_parts_.swap(step_parts_);
  }
  close_step();
}

Status ChannelImpl::mask_sent(std::string_view name, std::uint64_t first, std::span<float> momentum) const {
  if (!codec_->info().sparse) return {};
  if (step_open_) return fail(ErrorCode::kState, "a step is open; commit or revert it before masking");
  const auto part = std::find_if(
      committed_parts_.begin(), committed_parts_.end(),
      [&](const StepPart& candidate) { return candidate.name == name && candidate.sent.first == first; });
  if (part == committed_parts_.end()) {
    return fail(ErrorCode::kState,
                "part '" + std::string(name) + "' was not in the step that was committed last");
  }
  if (part->sent.count != momentum.size()) {
    return fail(ErrorCode::kInvalidArgument,
                "part '" + std::string(name) + "' has " + std::to_string(part->sent.count) +
                    " elements, its momentum " + std::to_string(momentum.size()));
  }
  if (!part->sent.codec->info().sparse || part->sent.state != SegmentState::kCoded) return {};
  std::vector<float> sent(momentum.size());
  const TensorSlot slot{sent.data(), sent.size(), DType::kF32};
  if (Status s = part->sent.codec->decode(part->sent.encoded, slot, Into::kOverwrite, 1.0F); !s) return s;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (sent[i] != 0.0F) momentum[i] = 0.0F;
  }
  return {};
}

void ChannelImpl::revert() noexcept {
  if (options_.revert == Revert::kExact) {
    residuals_.restore_step();
  } else {
    for (const StepPart& part : step_parts_) PartEncoder::fold(part.sent);
  }
  close_step();
}

std::span<const float> ChannelImpl::residual(std::string_view name, std::uint64_t first) const {
  const ResidualStore::Entry* entry = residuals_.find(name, first);
  return entry == nullptr ? std::span<const float>{} : std::span<const float>(entry->values);
}

Result<std::vector<std::byte>> ChannelImpl::save() const {
  if (step_open_) return fail(ErrorCode::kState, "a step is open; commit or revert it before saving");
  return save_residuals(residuals_, state_hash_);
}

Status ChannelImpl::load(Bytes state) {
  if (step_open_) return fail(ErrorCode::kState, "a step is open; commit or revert it before loading");
  ResidualStore loaded(meter_);
  if (Status status = load_residuals(state, state_hash_, loaded); !status) return status;
  residuals_ = std::move(loaded);
  return {};
}

}  // namespace

Result<std::unique_ptr<Channel>> make_metered_channel(std::string_view codec_spec,
                                                      const ChannelOptions& options,
                                                      std::shared_ptr<MemoryMeter> meter) {
  Result<std::unique_ptr<const Codec>> codec = make_codec(codec_spec);
  if (!codec) return forward_error(codec);
  Result<std::unique_ptr<const Codec>> raw = make_codec("fp32");
  if (!raw) return forward_error(raw);
  return std::make_unique<ChannelImpl>(std::move(*codec), std::move(*raw), options, std::move(meter));
}

Result<std::unique_ptr<Channel>> make_channel(std::string_view codec_spec, const ChannelOptions& options) {
  return make_metered_channel(codec_spec, options, nullptr);
}

}  // namespace deltawire
