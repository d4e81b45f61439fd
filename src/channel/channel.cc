// The Channel: residuals and the step's transaction around codec, framing and decoding.
#include "deltawire/channel.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "channel/channel_state.h"
#include "channel/codec_rules.h"
#include "channel/distinct_tensors.h"
#include "channel/half_codecs.h"
#include "channel/message_decoder.h"
#include "channel/message_maker.h"
#include "channel/metered_channel.h"
#include "channel/part_encoder.h"
#include "channel/part_jobs.h"
#include "channel/residual_store.h"
#include "channel/step_record.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kMaxTensorElements = std::uint64_t{1} << 32;

constexpr std::uint32_t low_half(std::uint64_t hash) noexcept {
  return static_cast<std::uint32_t>(hash);
}

Status check_encode(const StepRecord& record, std::span<const Named> parts, const MessageId& id) {
  RETURN_IF_ERROR(record.check_may_open(id.step));
  if (!std::isfinite(id.scale) || id.scale <= 0.0F) {
    return invalid("the scale " + std::to_string(id.scale) + " must be finite and above 0");
  }
  for (const Named& part : parts) {
    if (part.first >= kMaxTensorElements || part.tensor.elements() >= kMaxTensorElements - part.first) {
      return fail(ErrorCode::kLimit,
                  "part '" + std::string(part.name) + "' goes beyond element 2^32; split the tensor");
    }
  }
  return {};
}

// Opens the step for a message of these parts.
Status begin(MessageMaker& maker, std::span<const Named> parts, const MessageId& id) {
  RETURN_IF_ERROR(check_encode(maker.record(), parts, id));
  maker.record().open(id.step);
  maker.begin();
  return {};
}

Result<std::uint64_t> copy_of_encoded(Channel& channel, const MessageLayout& layout, const MessageId& id,
                                      MutBytes out) {
  ASSIGN_OR_RETURN(const auto pieces, channel.encode(layout, id, 1));
  std::byte* end = out.data();
  for (const Bytes piece : pieces) end = std::ranges::copy(piece, end).out;
  channel.release(pieces);
  return static_cast<std::uint64_t>(end - out.data());
}

// Whether the step needs the message until it ends: a revert folds it, or mask_sent decodes it.
bool is_needed(const PartCodecs& codecs, const MessageLayout& message, std::uint64_t step, Revert revert) {
  return std::ranges::any_of(message.parts, [&](const Named& part) {
    return codecs.of(part, step).info().sparse || (revert == Revert::kFold && !part.is_transient);
  });
}

// A residual that is not there yet, and for which there is no memory, stays unmade.
void keep_part(PartEncoder& encoder, const Named& unsent, const MessageId& id) noexcept {
  (void)or_no_memory("keeping a part", [&]() -> Status {
    encoder.keep(unsent, id);
    return {};
  });
}

// After an error. What was coded is folded back; the rest waits in the residual as it is.
void keep_what_was_not_coded(MessageMaker& maker, PartEncoder& encoder, std::span<const Named> parts,
                             const MessageId& id) noexcept {
  if (maker.jobs().empty()) {
    for (const Named& part : parts) keep_part(encoder, part, id);
  }
  for (const PartJob& job : maker.jobs()) {
    if (!job.coded) keep_part(encoder, *job.part, id);
  }
}

// By which rules a channel codes, and what messages and saved states say of them.
struct RulesInUse {
  RulesInUse(CodecRules rules, const Policy& policy)
      : now(std::move(rules)),
        hash(params_hash(now.spec(), policy)),
        state_hash(params_hash(now.spec(), Policy{policy.min_elements})) {}

  CodecRules now;
  std::vector<CodecRules> former;  // by which the last committed step may have been coded
  std::uint64_t hash;
  std::uint64_t state_hash;  // of the first, without Policy::nonfinite, which says nothing about residuals
};

class ChannelImpl final : public MeteredChannel {
 public:
  ChannelImpl(CodecRules rules, std::unique_ptr<const Codec> raw, HalfCodecs halves,
              const ChannelOptions& options, ChannelResources resources)
      : rules_(std::move(rules), options.policy),
        raw_(std::move(raw)),
        halves_(std::move(halves)),
        options_(options),
        resources_(std::move(resources)),
        residuals_(resources_.meter, resources_.backend.get()),
        encoder_(codecs(), options_, residuals_),
        maker_(encoder_, resources_.backend == nullptr, resources_.meter) {
    memory_.scratch_held = {resources_.meter, MemoryMeter::Use::kMessages};
  }

  const std::string& spec() const noexcept override {
    return (rules_.former.empty() ? rules_.now : rules_.former.front()).spec();
  }
  const Codec& codec_of(const Named& part, std::uint64_t step) const noexcept override {
    return codecs().of(part, step);
  }
  PartPlan plan(const Named& part, std::uint64_t step) const override { return encoder_.plan(part, step); }
  std::span<const PartUse> last_step() const noexcept override { return maker_.record().uses(); }
  FeedbackFlow flow() const noexcept override { return maker_.record().flow(); }
  bool any(bool CodecInfo::* property) const noexcept override { return rules_.now.any(property); }
  bool takes_pairs(const Named& part, std::uint64_t step) const noexcept override {
    return codecs().take_pairs(part, step);
  }

  std::uint64_t message_bound(const MessageLayout& message, std::uint64_t step) const override {
    const MessageBounds bounds = bounds_of(message.parts, step, encoder_);
    if (bounds.parts == 0) return 0;
    return bounds.payload_bytes + bounds.lists().head_bytes;
  }

  Result<std::span<const Bytes>> encode(const MessageLayout& layout, const MessageId& id,
                                        std::uint64_t room) override {
    RETURN_IF_ERROR(begin(maker_, layout.parts, id));
    auto pieces = or_no_memory("encoding a message", [&]() -> Result<std::span<const Bytes>> {
      RETURN_IF_ERROR(maker_.check_distinct(layout));
      const MessageBounds bounds = bounds_of(layout.parts, id.step, encoder_);
      maker_.open(layout, id.step, room == 0 || is_needed(codecs(), layout, id.step, options_.revert), room,
                  bounds);
      if (resources_.backend) {
        code_parts_on(*resources_.backend, maker_.jobs(), encoder_, id);
      } else {
        code_parts(maker_.jobs(), encoder_, id, bounds, {resources_.workers.get(), memory_.scratch});
      }
      memory_.scratch_held.set(memory_.scratch.capacity() + maker_.writer_bytes());
      RETURN_IF_ERROR(maker_.close(id, low_half(rules_.hash)));
      return maker_.pieces(0);
    });
    if (!pieces && options_.revert == Revert::kFold)
      keep_what_was_not_coded(maker_, encoder_, layout.parts, id);
    return pieces;
  }

  bool sends_values(const MessageLayout& message, std::uint64_t step) const noexcept override {
    return resources_.backend == nullptr && std::ranges::all_of(message.parts, [&](const Named& part) {
             return part.tensor.elements() == 0 || encoder_.sends_values(part, step);
           });
  }

  Result<std::span<const Bytes>> encode_in_place(const MessageLayout& layout, const MessageId& id,
                                                 std::uint64_t room) override {
    if (!sends_values(layout, id.step)) return encode(layout, id, room);
    RETURN_IF_ERROR(begin(maker_, layout.parts, id));
    return or_no_memory("encoding a message", [&]() -> Result<std::span<const Bytes>> {
      RETURN_IF_ERROR(maker_.check_distinct(layout));
      return maker_.make_in_place(layout, id, low_half(rules_.hash), true);
    });
  }

  Result<std::uint64_t> lend(const MessageLayout& layout, const MessageId& id) override {
    assert(sends_values(layout, id.step));
    RETURN_IF_ERROR(begin(maker_, layout.parts, id));
    return or_no_memory("lending a message", [&]() -> Result<std::uint64_t> {
      RETURN_IF_ERROR(maker_.check_distinct(layout));
      const auto message = maker_.make_in_place(layout, id, low_half(rules_.hash), false);
      std::uint64_t bytes = 0;
      for (const Bytes piece : message) bytes += piece.size();
      release(message);
      return bytes;
    });
  }

  Result<std::uint64_t> encode_to(const MessageLayout& layout, const MessageId& id, MutBytes out) override {
    const std::uint64_t bound = message_bound(layout, id.step);
    if (out.size() < bound) {
      return fail(ErrorCode::kOutputTooSmall, "the message may need " + std::to_string(bound) +
                                                  " bytes, but there is room for " +
                                                  std::to_string(out.size()));
    }
    RETURN_IF_ERROR(check_apart(layout.parts, out.first(bound)));
    if (resources_.backend || options_.revert == Revert::kFold)
      return copy_of_encoded(*this, layout, id, out);
    RETURN_IF_ERROR(begin(maker_, layout.parts, id));
    return or_no_memory("encoding a message", [&]() -> Result<std::uint64_t> {
      RETURN_IF_ERROR(maker_.check_distinct(layout));
      const MessageBounds bounds = bounds_of(layout.parts, id.step, encoder_, true);
      maker_.open(layout, id.step, is_needed(codecs(), layout, id.step, options_.revert), 0, bounds, true);
      code_parts(maker_.jobs(), encoder_, id, bounds, {resources_.workers.get(), memory_.scratch});
      return maker_.write(id, low_half(rules_.hash), bounds.chunk, out);
    });
  }

  Status encode_all(std::span<const MessageLayout> messages, const MessageId& id, std::uint64_t room,
                    std::vector<std::span<const Bytes>>& encoded) override {
    if (!resources_.backend) return Channel::encode_all(messages, id, room, encoded);
    for (const MessageLayout& layout : messages) {
      RETURN_IF_ERROR(check_encode(maker_.record(), layout.parts, id));
    }
    maker_.record().open(id.step);
    maker_.begin();
    return or_no_memory("encoding messages", [&]() -> Status {
      for (const MessageLayout& layout : messages) {
        RETURN_IF_ERROR(maker_.check_distinct(layout));
        const MessageBounds bounds = bounds_of(layout.parts, id.step, encoder_);
        maker_.open(layout, id.step, room == 0 || is_needed(codecs(), layout, id.step, options_.revert), room,
                    bounds);
      }
      code_parts_on(*resources_.backend, maker_.jobs(), encoder_, id);
      RETURN_IF_ERROR(maker_.close(id, low_half(rules_.hash)));
      for (std::size_t i = 0; i < maker_.count(); ++i) encoded.push_back(maker_.pieces(i));
      return {};
    });
  }

  void release(std::span<const Bytes> pieces) noexcept override {
    maker_.record().messages().release(pieces);
  }

  Status prepare(const MessageLayout& message, std::uint64_t step) override {
    if (options_.revert != Revert::kFold) return {};
    for (const Named& part : message.parts) {
      if (part.tensor.elements() == 0) continue;
      SentPart made;
      RETURN_IF_ERROR(encoder_.open(part, step, made));
    }
    return {};
  }

  void keep(const MessageLayout& message, const MessageId& id) noexcept override {
    if (options_.revert != Revert::kFold) return;
    (void)or_no_memory("keeping a message", [&]() -> Status {
      RETURN_IF_ERROR(check_encode(maker_.record(), message.parts, id));
      maker_.record().open(id.step);
      for (const Named& part : message.parts) keep_part(encoder_, part, id);
      return {};
    });
  }

  Status decode(std::span<const Bytes> pieces, const MessageLayout& parts, const MessageId& expected,
                Into into, float scale) override {
    RETURN_IF_ERROR(or_no_memory("looking at slots", [&] { return check_apart(parts.parts); }));
    RETURN_IF_ERROR(check_apart(parts.parts, pieces.size() == 1 ? pieces[0] : Bytes()));
    const ExpectedMessage due{expected, low_half(rules_.hash), parts};
    return decode_message(pieces, due, codecs(), Target{into, scale}, memory_);
  }

  Status decode_all(std::span<const ReceivedMessage> messages, const MessageId& expected, Into into,
                    float scale) override {
    if (!resources_.backend) return Channel::decode_all(messages, expected, into, scale);
    const ExpectedMessage each{expected, low_half(rules_.hash), std::span<const Named>()};
    return decode_messages_on_device(messages, each, codecs(), Target{into, scale}, memory_);
  }

  Status decode_pairs(std::span<const Bytes> pieces, const MessageLayout& parts, const MessageId& expected,
                      float scale, std::span<Pairs> means) override {
    const ExpectedMessage due{expected, low_half(rules_.hash), parts};
    return decode_message_to_pairs(pieces, due, codecs(), scale, means, memory_);
  }

  Status mask_sent(std::string_view name, std::uint64_t first, std::span<float> momentum) const override {
    if (!rules_.now.any(&CodecInfo::sparse)) return {};
    RETURN_IF_ERROR(maker_.record().check_closed("masking"));
    const SentPart* part = maker_.record().find(name_hash(Named{name, {}}), first);
    if (part == nullptr) {
      return wrong_state("part '" + std::string(name) + "' was not in the step that was committed last");
    }
    if (part->count != momentum.size()) {
      return invalid("part '" + std::string(name) + "' has " + std::to_string(part->count) +
                     " elements, its momentum " + std::to_string(momentum.size()));
    }
    return PartEncoder::clear_sent(*part, momentum);
  }

  void commit() noexcept override {
    maker_.record().commit(rules_.now.any(&CodecInfo::sparse), memory_.scratch);  // kept for mask_sent
    maker_.payloads().end_step();
    residuals_.forget_step();
  }

  void revert() noexcept override {
    if (resources_.backend) resources_.backend->forget_decoded();
    if (options_.revert == Revert::kExact) {
      residuals_.restore_step();
    } else {
      maker_.record().fold(memory_.scratch);
    }
    maker_.record().end();
    maker_.record().messages().end_step();  // after a step of no messages nothing is kept
    residuals_.forget_step();
    maker_.payloads().end_step();
    maker_.payloads().clear();
  }

  Status recode(std::string_view codecs) override {
    RETURN_IF_ERROR(maker_.record().check_closed("changing its codecs"));
    ASSIGN_OR_RETURN(auto rules, CodecRules::parse(codecs, {.of_means = options_.means}));
    rules_.former.push_back(std::exchange(rules_.now, std::move(rules)));
    rules_.hash = params_hash(rules_.now.spec(), options_.policy);
    return {};
  }

  std::span<const float> residual(std::string_view name, std::uint64_t first) const override {
    return residuals_.values_of(Named{name, {}, first});
  }

  Result<std::vector<std::byte>> save() const override {
    RETURN_IF_ERROR(maker_.record().check_closed("saving"));
    if (resources_.backend) {
      ResidualStore copy;
      RETURN_IF_ERROR(residuals_.download(copy));
      return save_residuals(copy, rules_.state_hash);
    }
    return save_residuals(residuals_, rules_.state_hash);
  }

  Status load(Bytes state) override {
    return replace_residuals([&](auto& store) { return load_residuals(state, rules_.state_hash, store); });
  }
  Status load_weighted(std::span<const WeightedState> states, const CutTensors& wanted) override {
    return replace_residuals(
        [&](auto& store) { return add_weighted(states, wanted, rules_.state_hash, store); });
  }

 private:
  PartCodecs codecs() const noexcept {
    return {rules_.now,
            *raw_,
            halves_,
            options_.policy,
            options_.error_feedback,
            options_.bare_parts,
            options_.revert == Revert::kFold,
            resources_.backend ? nullptr : resources_.workers.get(),
            resources_.backend.get()};
  }
  Status replace_residuals(const auto& filled_by) {
    RETURN_IF_ERROR(maker_.record().check_closed("loading"));
    ResidualStore loaded(resources_.meter);
    RETURN_IF_ERROR(filled_by(loaded));
    if (resources_.backend) {
      ResidualStore uploaded(resources_.meter, resources_.backend.get());
      RETURN_IF_ERROR(uploaded.upload(loaded));
      loaded = std::move(uploaded);
    }
    residuals_ = std::move(loaded);
    maker_.record().forget_uses();
    return {};
  }

  RulesInUse rules_;
  std::unique_ptr<const Codec> raw_;
  HalfCodecs halves_;
  ChannelOptions options_;
  ChannelResources resources_;
  ResidualStore residuals_;
  CodingMemory memory_;
  PartEncoder encoder_;
  MessageMaker maker_;
};

}  // namespace

Status Channel::encode_all(std::span<const MessageLayout> messages, const MessageId& id, std::uint64_t room,
                           std::vector<std::span<const Bytes>>& encoded) {
  for (const MessageLayout& layout : messages) {
    ASSIGN_OR_RETURN(encoded.emplace_back(), encode(layout, id, room));
  }
  return {};
}

Status Channel::decode_all(std::span<const ReceivedMessage> messages, const MessageId& expected, Into into,
                           float scale) {
  for (const ReceivedMessage& message : messages) {
    RETURN_IF_ERROR(decode(message.pieces, message.layout, expected, into, scale));
  }
  return {};
}

std::uint32_t MessageLayout::hash_of(std::span<const Named> parts) {
  return layout_hash(parts);
}

Result<std::unique_ptr<MeteredChannel>> make_metered_channel(std::string_view codecs,
                                                             const ChannelOptions& options,
                                                             ChannelResources resources) {
  if (options.revert == Revert::kFold && !options.error_feedback) {
    return invalid(
        "a channel without error feedback keeps nothing, so that a revert can fold nothing; take the "
        "exact revert, or error feedback");
  }
  ASSIGN_OR_RETURN(CodecRules rules, CodecRules::parse(codecs, {.of_means = options.means}));
  if (resources.backend && options.revert == Revert::kFold) {
    return invalid("a device's residuals can't be folded; take the exact revert, or let the CPU code");
  }
  if (resources.backend && rules.change_inputs()) {
    return invalid("a device codes no part of '" + rules.spec() +
                   "': clip and momentum are the CPU's; leave them out, or let the CPU code");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<const Codec> raw, make_codec("fp32"));
  ASSIGN_OR_RETURN(HalfCodecs halves, HalfCodecs::make());
  return std::make_unique<ChannelImpl>(std::move(rules), std::move(raw), std::move(halves), options,
                                       std::move(resources));
}

Result<std::unique_ptr<Channel>> make_channel(std::string_view codecs, const ChannelOptions& options) {
  return make_metered_channel(codecs, options, {});
}

}  // namespace deltawire
