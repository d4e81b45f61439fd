// The Channel: residuals and the step's transaction around codec, framing and decoding.
#include "deltawire/channel.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/no_memory.h"
#include "channel/channel_state.h"
#include "channel/codec_rules.h"
#include "channel/half_codecs.h"
#include "channel/message_decoder.h"
#include "channel/message_encoder.h"
#include "channel/metered_channel.h"
#include "channel/part_encoder.h"
#include "channel/part_jobs.h"
#include "channel/payload_maker.h"
#include "channel/residual_store.h"
#include "channel/shared_residuals.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kMaxTensorElements = std::uint64_t{1} << 32;

constexpr std::uint32_t low_half(std::uint64_t hash) noexcept {
  return static_cast<std::uint32_t>(hash);
}

class ChannelImpl final : public Channel {
 public:
  ChannelImpl(CodecRules rules, std::unique_ptr<const Codec> raw, HalfCodecs halves,
              const ChannelOptions& options, ChannelResources resources)
      : rules_(std::move(rules)),
        raw_(std::move(raw)),
        halves_(std::move(halves)),
        options_(options),
        params_hash_(deltawire::params_hash(rules_.spec(), options.policy)),
        state_hash_(deltawire::params_hash(rules_.spec(), Policy{options.policy.min_elements})),
        meter_(std::move(resources.meter)),
        workers_(std::move(resources.workers)),
        residuals_(meter_),
        payload_maker_(meter_),
        messages_(meter_),
        committed_messages_(meter_),
        scratch_held_(meter_, MemoryMeter::Use::kMessages),
        encoder_(codecs(), options_, residuals_) {}

  const std::string& spec() const noexcept override { return rules_.spec(); }
  const Codec& codec_of(const Named& part, std::uint64_t step) const noexcept override {
    return codecs().of(part, step);
  }
  PartPlan plan(const Named& part, std::uint64_t step) const override { return encoder_.plan(part, step); }
  std::span<const PartUse> last_step() const noexcept override { return last_step_; }
  bool any(bool CodecInfo::* property) const noexcept override { return rules_.any(property); }
  bool takes_pairs(const Named& part, std::uint64_t step) const noexcept override {
    return codecs().take_pairs(part, step);
  }
  std::uint64_t message_bound(const MessageLayout& message, std::uint64_t step) const override;
  Result<std::span<const Bytes>> encode(const MessageLayout& layout, const MessageId& id,
                                        std::uint64_t room) override;
  void release(std::span<const Bytes> pieces) noexcept override { messages_.release(pieces); }
  Status prepare(const MessageLayout& message, std::uint64_t step) override;
  void keep(const MessageLayout& message, const MessageId& id) noexcept override;
  Status decode(std::span<const Bytes> pieces, const MessageLayout& parts, const MessageId& expected,
                Into into, float scale) override;
  Status decode_pairs(std::span<const Bytes> pieces, const MessageLayout& parts, const MessageId& expected,
                      float scale, std::span<Pairs> means) override;
  Status mask_sent(std::string_view name, std::uint64_t first, std::span<float> momentum) const override;
  void commit() noexcept override;
  void revert() noexcept override;
  std::span<const float> residual(std::string_view name, std::uint64_t first) const override;
  Result<std::vector<std::byte>> save() const override;
  Status load(Bytes state) override {
    return replace_residuals([&](auto& store) { return load_residuals(state, state_hash_, store); });
  }
  Status load_shares(std::span<const Share> shares, const CutTensors& wanted) override {
    return replace_residuals([&](auto& store) { return add_shares(shares, wanted, state_hash_, store); });
  }

 private:
  PartCodecs codecs() const noexcept {
    return {rules_,
            *raw_,
            halves_,
            options_.policy,
            options_.error_feedback,
            options_.revert == Revert::kFold,
            workers_.get()};
  }
  MessageBounds bounds_of(std::span<const Named> parts, std::uint64_t step) const;
  Status check_encode(std::span<const Named> parts, const MessageId& id) const;
  bool may_need(std::span<const Named> parts, std::uint64_t step) const;
  void lay_out(std::span<const Named> parts, std::uint64_t step, const MessageBounds& bounds,
               Message& message);
  void keep_what_was_not_coded(std::span<const Named> parts, const MessageId& id) noexcept;
  void keep_part(const Named& unsent, const MessageId& id) noexcept;
  void close_step() noexcept;
  template <class Fill>
  Status replace_residuals(const Fill& filled_by) {
    if (step_open_) return fail(ErrorCode::kState, "a step is open; commit or revert it before loading");
    ResidualStore loaded(meter_);
    if (Status filled = filled_by(loaded); !filled) return filled;
    residuals_ = std::move(loaded);
    last_step_.clear();
    return {};
  }

  CodecRules rules_;
  std::unique_ptr<const Codec> raw_;
  HalfCodecs halves_;
  ChannelOptions options_;
  std::uint64_t params_hash_;
  std::uint64_t state_hash_;  // without Policy::nonfinite, which says nothing about residuals
  std::shared_ptr<MemoryMeter> meter_;
  std::shared_ptr<Workers> workers_;
  ResidualStore residuals_;
  PayloadMaker payload_maker_;
  bool step_open_ = false;
  std::uint64_t step_ = 0;
  StepMessages messages_;             // of the open step
  std::vector<SentPart> step_parts_;  // of all its messages: what a fold needs
  std::vector<PartJob> jobs_;         // of the message that is being encoded
  StepMessages committed_messages_;   // of the last committed step, sparse codecs only: for mask_sent
  std::vector<SentPart> committed_parts_;
  std::vector<PartUse> last_step_;  // of all committed parts, whatever the codec
  CodingMemory memory_;
  MeteredBytes scratch_held_;
  PartEncoder encoder_;
};

MessageBounds ChannelImpl::bounds_of(std::span<const Named> parts, std::uint64_t step) const {
  MessageBounds bounds;
  for (const Named& part : parts) {
    if (part.tensor.elements() == 0) continue;
    const Sizes sizes = encoder_.sizes(part, step);
    bounds.payload_bytes += sizes.payload_bytes;
    bounds.chunks += sizes.chunks;
    bounds.scratch_bytes = std::max(bounds.scratch_bytes, sizes.scratch_bytes);
    bounds.elements += part.tensor.elements();
    bounds.longest = std::max(bounds.longest, part.tensor.elements());
    ++bounds.parts;
  }
  return bounds;
}

std::uint64_t ChannelImpl::message_bound(const MessageLayout& message, std::uint64_t step) const {
  const MessageBounds bounds = bounds_of(message.parts, step);
  if (bounds.parts == 0) return 0;
  return bounds.payload_bytes + bounds.lists().head_bytes;
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

// All memory that a revert needs is taken here, before a residual changes.
void ChannelImpl::lay_out(std::span<const Named> parts, std::uint64_t step, const MessageBounds& bounds,
                          Message& message) {
  Sizes at;  // of the next part's slot
  jobs_.reserve(bounds.parts);
  step_parts_.reserve(step_parts_.size() + bounds.parts);
  last_step_.reserve(step_parts_.size() + bounds.parts);  // commit can't
  for (const Named& part : parts) {
    if (part.tensor.elements() == 0) continue;
    const Sizes sizes = encoder_.sizes(part, step);
    PartJob& job = jobs_.emplace_back();
    job.part = &part;
    job.slot = message.slot(at, sizes);
    job.sent.index = static_cast<std::uint32_t>(&part - parts.data());
    job.coded = encoder_.open(part, step, job.sent);
    at.payload_bytes += sizes.payload_bytes;
    at.chunks += sizes.chunks;
  }
}

// What a revert folds, or mask_sent decodes.
bool ChannelImpl::may_need(std::span<const Named> parts, std::uint64_t step) const {
  const bool folds = options_.revert == Revert::kFold;
  return std::ranges::any_of(parts, [&](const Named& part) {
    return codec_of(part, step).info().sparse || (folds && !part.is_transient);
  });
}

Result<std::span<const Bytes>> ChannelImpl::encode(const MessageLayout& layout, const MessageId& id,
                                                   std::uint64_t room) {
  if (Status legal = check_encode(layout.parts, id); !legal) return forward_error(legal);
  step_open_ = true;
  step_ = id.step;
  jobs_.clear();
  auto pieces = or_no_memory("encoding a message", [&]() -> Result<std::span<const Bytes>> {
    const MessageBounds bounds = bounds_of(layout.parts, id.step);
    Message& message = messages_.add(bounds.lists());
    message.is_needed = room == 0 || may_need(layout.parts, id.step);
    payload_maker_.open(message, std::max(bounds.payload_bytes, message.is_needed ? 0 : room));
    lay_out(layout.parts, id.step, bounds, message);
    code_parts(jobs_, encoder_, id, bounds, {workers_.get(), memory_.scratch});
    scratch_held_.set(memory_.scratch.capacity());
    const std::size_t earlier = step_parts_.size();
    for (const PartJob& job : jobs_) step_parts_.push_back(job.sent);
    for (const PartJob& job : jobs_) {
      if (!job.coded) return forward_error(job.coded);
    }
    const std::span<SentPart> sent = std::span(step_parts_).subspan(earlier);
    payload_maker_.close(message, sent);
    frame_message(sent, {id, low_half(params_hash_), layout.hash}, message);
    message.count();
    return std::span<const Bytes>(message.pieces);
  });
  if (!pieces && options_.revert == Revert::kFold) keep_what_was_not_coded(layout.parts, id);
  return pieces;
}

// After an error. What was coded is folded back; the rest waits in the residual as it is.
void ChannelImpl::keep_what_was_not_coded(std::span<const Named> parts, const MessageId& id) noexcept {
  if (jobs_.empty()) {
    for (const Named& part : parts) keep_part(part, id);
  }
  for (const PartJob& job : jobs_) {
    if (!job.coded) keep_part(*job.part, id);
  }
}

// A residual that is not there yet, and for which there is no memory, stays unmade.
void ChannelImpl::keep_part(const Named& unsent, const MessageId& id) noexcept {
  (void)or_no_memory("keeping a part", [&]() -> Status {
    encoder_.keep(unsent, id);
    return {};
  });
}

Status ChannelImpl::prepare(const MessageLayout& message, std::uint64_t step) {
  if (options_.revert != Revert::kFold) return {};
  for (const Named& part : message.parts) {
    if (part.tensor.elements() == 0) continue;
    SentPart made;
    if (Status opened = encoder_.open(part, step, made); !opened) return opened;
  }
  return {};
}

void ChannelImpl::keep(const MessageLayout& message, const MessageId& id) noexcept {
  if (options_.revert != Revert::kFold) return;
  (void)or_no_memory("keeping a message", [&]() -> Status {
    if (Status legal = check_encode(message.parts, id); !legal) return legal;
    step_open_ = true;
    step_ = id.step;
    for (const Named& part : message.parts) keep_part(part, id);
    return {};
  });
}

Status ChannelImpl::decode(std::span<const Bytes> pieces, const MessageLayout& parts,
                           const MessageId& expected, Into into, float scale) {
  const ExpectedMessage due{expected, low_half(params_hash_), parts};
  return decode_message(pieces, due, codecs(), Target{into, scale}, memory_);
}

Status ChannelImpl::decode_pairs(std::span<const Bytes> pieces, const MessageLayout& parts,
                                 const MessageId& expected, float scale, std::span<Pairs> means) {
  const ExpectedMessage due{expected, low_half(params_hash_), parts};
  return decode_message_to_pairs(pieces, due, codecs(), scale, means, memory_);
}

void ChannelImpl::close_step() noexcept {
  step_open_ = false;
  messages_.end_step();
  step_parts_.clear();
  payload_maker_.end_step();
  residuals_.forget_step();
}

void ChannelImpl::commit() noexcept {
  last_step_.clear();
  for (const SentPart& part : step_parts_) {
    PartEncoder::mask(part, memory_.scratch);
    last_step_.push_back(PartEncoder::use_of(part));
    PartEncoder::discharge(part);
  }
  if (rules_.any(&CodecInfo::sparse)) {
    committed_messages_.swap(messages_);
    committed_parts_.swap(step_parts_);
  }
  close_step();
}

Status ChannelImpl::mask_sent(std::string_view name, std::uint64_t first, std::span<float> momentum) const {
  if (!rules_.any(&CodecInfo::sparse)) return {};
  if (step_open_) return fail(ErrorCode::kState, "a step is open; commit or revert it before masking");
  const std::uint64_t hash = name_hash(Named{name, {}});
  const auto part = std::ranges::find_if(committed_parts_, [&](const SentPart& candidate) {
    return candidate.name_hash == hash && candidate.first == first;
  });
  if (part == committed_parts_.end()) {
    return fail(ErrorCode::kState,
                "part '" + std::string(name) + "' was not in the step that was committed last");
  }
  if (part->count != momentum.size()) {
    return fail(ErrorCode::kInvalidArgument, "part '" + std::string(name) + "' has " +
                                                 std::to_string(part->count) + " elements, its momentum " +
                                                 std::to_string(momentum.size()));
  }
  return PartEncoder::clear_sent(*part, momentum);
}

void ChannelImpl::revert() noexcept {
  if (options_.revert == Revert::kExact) {
    residuals_.restore_step();
  } else {
    for (const SentPart& part : step_parts_) PartEncoder::fold(part, memory_.scratch);
  }
  close_step();
  messages_.end_step();  // after a step of no messages nothing is kept
  payload_maker_.clear();
}

std::span<const float> ChannelImpl::residual(std::string_view name, std::uint64_t first) const {
  const ResidualStore::Entry* entry = residuals_.find(Named{name, {}, first});
  return entry == nullptr ? std::span<const float>{} : std::span<const float>(entry->values);
}

Result<std::vector<std::byte>> ChannelImpl::save() const {
  if (step_open_) return fail(ErrorCode::kState, "a step is open; commit or revert it before saving");
  return save_residuals(residuals_, state_hash_);
}

}  // namespace

std::uint32_t MessageLayout::hash_of(std::span<const Named> parts) {
  return layout_hash(parts);
}

Result<std::unique_ptr<Channel>> make_metered_channel(std::string_view codecs, const ChannelOptions& options,
                                                      ChannelResources resources) {
  if (options.revert == Revert::kFold && !options.error_feedback) {
    return fail(ErrorCode::kInvalidArgument,
                "a channel without error feedback keeps nothing, so that a revert can fold nothing; take the "
                "exact revert, or error feedback");
  }
  Result<CodecRules> rules = CodecRules::parse(codecs);
  if (!rules) return forward_error(rules);
  Result<std::unique_ptr<const Codec>> raw = make_codec("fp32");
  if (!raw) return forward_error(raw);
  Result<HalfCodecs> halves = HalfCodecs::make();
  if (!halves) return forward_error(halves);
  return std::make_unique<ChannelImpl>(std::move(*rules), std::move(*raw), std::move(*halves), options,
                                       std::move(resources));
}

Result<std::unique_ptr<Channel>> make_channel(std::string_view codecs, const ChannelOptions& options) {
  return make_metered_channel(codecs, options, {});
}

}  // namespace deltawire
