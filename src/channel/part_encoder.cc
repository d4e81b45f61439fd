#include "channel/part_encoder.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/errors.h"
#include "base/float16.h"
#include "base/random.h"
#include "base/values.h"
#include "channel/raw_values.h"
#include "channel/step_record.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

bool has_only_zeros(const TensorSlot& tensor) {
  if (tensor.dtype == DType::kF32) {
    return all_zeros(std::span(static_cast<const float*>(tensor.values), tensor.count));
  }
  return dtype_bytes(tensor.dtype) == 2 &&
         all_zeros(std::span(static_cast<const std::uint16_t*>(tensor.values), tensor.count));
}

// The dense tensor that the pairs stand for.
Result<std::vector<std::byte>> dense_of(const TensorSlot& pairs) {
  const std::uint64_t width = dtype_bytes(pairs.dtype);
  std::vector<std::byte> dense(pairs.dimension * width);
  const auto* values = static_cast<const std::byte*>(pairs.values);
  for (std::uint64_t i = 0; i < pairs.count; ++i) {
    if (pairs.keys[i] >= pairs.dimension || (i > 0 && pairs.keys[i] <= pairs.keys[i - 1])) {
      return invalid("key " + std::to_string(pairs.keys[i]) + " at index " + std::to_string(i) +
                     " is out of order or not below " + std::to_string(pairs.dimension) + "; sort the keys");
    }
    std::memcpy(dense.data() + pairs.keys[i] * width, values + i * width, width);
  }
  return dense;
}

// Others are an error of Codec::encode.
bool has_legal_dims(const TensorSlot& tensor) noexcept {
  std::uint64_t product = 1;
  for (const std::uint64_t extent : tensor.dims) product = product_or_max(product, extent);
  return tensor.dims.empty() || product == tensor.elements();
}

// A pure function of what the numbers are drawn for, so that no restart and no order of parts changes them.
std::uint64_t stream_of(std::uint64_t seed, const MessageId& id, const Named& part) noexcept {
  std::uint64_t key = seed;
  for (const std::uint64_t word : {name_hash(part), part.first, id.step, std::uint64_t{id.rank}}) {
    key = CounterRng(key, word).at(0);
  }
  return key;
}

}  // namespace

TensorView PartEncoder::as_encoded(const Named& part) const {
  if (part.tensor.has_keys() && codecs_.is_raw(part)) {
    return TensorView{nullptr, part.tensor.dimension, part.tensor.dtype};
  }
  TensorView view = as_view(part.tensor);
  view.summed_dtype = part.summed_dtype;
  return view;
}

Sizes PartEncoder::sizes(const Named& part, std::uint64_t step) const noexcept {
  if (has_own_values(part)) return raw_sizes(part.tensor);
  const TensorView view = as_encoded(part);
  const Codec* half_form = codecs_.is_raw(part) ? nullptr : codecs_.rules.half_form(part, step);
  const Codec& codec = half_form != nullptr ? *half_form : codecs_.of(part, step);
  return codecs_.halves.with_room(part, view, codec.sizes(view));
}

bool PartEncoder::only_copies(const Named& part, std::uint64_t step) const noexcept {
  return has_own_values(part) && has_legal_dims(part.tensor) && keeps_nothing(part, step);
}

bool PartEncoder::codes_alone(const Named& part, std::uint64_t step) const noexcept {
  if (codecs_.is_raw(part) || part.tensor.has_keys() || !has_legal_dims(part.tensor)) return false;
  const Codec& codec = codecs_.of(part, step);
  return codec.info().separate_chunks && part.tensor.dtype == DType::kF32 &&
         part.own_dtype() == DType::kF32 && keeps_nothing(part, step) &&
         sizes(part, step).payload_bytes <= UINT32_MAX;
}

Sizes PartEncoder::chunk_sizes(const Named& part, std::uint64_t step) const noexcept {
  const Codec& codec = codecs_.of(part, step);
  return codec.sizes({nullptr, std::min(part.tensor.count, codec.info().chunk_elements), DType::kF32});
}

// Whether no residual of a part without error feedback of its codec's is read or made.
bool PartEncoder::keeps_nothing(const Named& part, std::uint64_t step) const noexcept {
  if (!codecs_.error_feedback) return true;
  if (folds(part) || feedback_of(part, step).changes_input()) return false;
  const ResidualStore::Entry* waiting = residuals_.find(part);
  return waiting == nullptr || waiting->is_empty();
}

PartPlan PartEncoder::plan(const Named& part, std::uint64_t step) const {
  const auto codec_at = [&](std::uint64_t at) {
    return codecs_.of(part, at).spec() + feedback_of(part, at).text();
  };
  PartPlan plan;
  plan.codec = codec_at(step);
  plan.is_raw = codecs_.is_raw(part);
  plan.is_late = !plan.is_raw && codecs_.rules.is_late(part, step);
  plan.payload_bytes = codecs_.of(part, step).sizes(as_encoded(part)).payload_bytes;
  plan.changes_at = codecs_.rules.next_change(part, step);
  // Another rule's codec is nothing to a raw part.
  while (plan.changes_at != kNoStep && codec_at(plan.changes_at) == plan.codec) {
    plan.changes_at = codecs_.rules.next_change(part, plan.changes_at);
  }
  return plan;
}

// Whether a revert leaves the part's input in its residual.
bool PartEncoder::folds(const Named& part) const noexcept {
  return options_.revert == Revert::kFold && !part.is_transient;
}

// The part's residual, or nullptr. What an earlier step's codec left, or a folding revert, waits for no
// other: it leaves with the next values, whatever their codec is. Folding, each part has room for one, so
// that a revert needs no memory.
Result<ResidualStore::Entry*> PartEncoder::residual_for(const Named& part, const Codec& codec,
                                                        const Feedback& feedback) {
  if (!codecs_.error_feedback) return nullptr;
  const bool keeps = codec.info().error_feedback || feedback.changes_input();
  if (!keeps && !folds(part)) {
    const ResidualStore::Entry* waiting = residuals_.find(part);
    if (waiting == nullptr || waiting->is_empty()) return nullptr;
  }
  if (part.tensor.has_keys()) {
    const std::string advice = keeps ? "turn the codec's residual off" : "take the exact revert";
    return invalid("part '" + std::string(part.name) + "' is in key-value form, which has no residual; " +
                   advice);
  }
  Result<ResidualStore::Entry*> entry = residuals_.obtain(part);
  if (!entry || !keeps) return entry;
  RETURN_IF_ERROR(residuals_.fill(**entry));
  return entry;
}

Status PartEncoder::open(const Named& part, std::uint64_t step, SentPart& sent) {
  sent.name_hash = name_hash(part);
  sent.first = part.first;
  sent.count = part.tensor.elements();
  sent.codec = &codecs_.of(part, step);
  sent.is_raw = codecs_.is_raw(part);
  sent.state = SegmentState::kNothing;  // of which nothing need be taken back
  sent.frame_version = kFrameVersion;
  sent.feedback = feedback_of(part, step);
  ASSIGN_OR_RETURN(sent.residual, residual_for(part, *sent.codec, sent.feedback));
  if (sent.residual != nullptr && sent.feedback.changes_input()) {
    sent.residual->velocity.prepare(sent.count);
    sent.residual->count();
  }
  return {};
}

// The part's input is in velocity.after() then.
Status PartEncoder::advance(const Named& part, const MessageId& id, const SentPart& sent) const {
  Velocity& velocity = sent.residual->velocity;
  assert(sent.feedback.changes_input());
  if (velocity.has_advanced()) {
    return wrong_state("part '" + std::string(part.name) +
                       "' is in the step already, and its momentum has moved; encode it once");
  }
  if (dtype_bytes(part.tensor.dtype) == 0) return {};
  velocity.advance(part.tensor, {sent.feedback, part.whole_elements(), id.scale});
  if (codecs_.policy.nonfinite == NonFinite::kPass || sent.codec->info().finite_only) return {};
  const auto values = velocity.after();
  const auto odd = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (odd == values.end()) return {};
  velocity.drop();
  return name_part(part, {ErrorCode::kNotFinite, "element " + std::to_string(odd - values.begin()) +
                                                     " is not finite, and momentum would keep it forever"});
}

// The form of the part's codec for its tensor's 16 bits, if it has one. It rounds sums and means, so it is
// not for parts with a residual, which would not know; nor for values that 16 bits don't hold, of which a
// device says so once it has encoded them.
const Codec* PartEncoder::half_form(const Named& part, std::uint64_t step, const TensorView& view,
                                    const SentPart& sent) const {
  if (sent.is_raw || view.has_keys()) return nullptr;
  const Codec* form = codecs_.rules.half_form(part, step);
  const bool has_residual = sent.residual != nullptr && !sent.residual->is_empty();
  if (form == nullptr || has_residual) return nullptr;
  const bool holds = codecs_.backend != nullptr || view.dtype == part.own_dtype() ||
                     HalfCodecs::carries(part.own_dtype(), view);
  return holds ? form : nullptr;
}

// The codec of the tensor's own 16 bits, where the part's codec took more than these; null otherwise. Sums
// and means are rounded by it. With a residual they are not, since it would not know; nor where a sparse
// codec left values out.
const Codec* PartEncoder::half_codec(const Named& part, const TensorView& view, const SentPart& sent,
                                     const EncodedPart& encoded) const {
  const Codec* half = codecs_.halves.of(part);
  const bool is_longer = encoded.payload_bytes > HalfCodecs::kValueBytes * view.count;
  if (half == nullptr || !is_longer || view.has_keys() || sent.codec->info().sparse) return nullptr;
  const bool has_residual = sent.residual != nullptr && !sent.residual->is_empty();
  return !has_residual && HalfCodecs::carries(part.own_dtype(), view) ? half : nullptr;
}

Status PartEncoder::code(const Named& part, const MessageId& id, const PartBuffer& buffer, Exec exec,
                         SentPart& sent, FeedbackFlow& flow) const {
  assert(sent.codec != nullptr && sent.count == part.tensor.elements());
  assert(sent.state == SegmentState::kNothing && sent.encoded.payload.empty());
  Residual residual;
  if (sent.residual != nullptr && has_only_zeros(part.tensor)) {
    if (codecs_.may_be(SegmentState::kNothing, *sent.codec)) return {};
    sent.residual = nullptr;
  }
  if (sent.residual != nullptr) {
    residual = options_.revert == Revert::kExact ? ResidualStore::keep_for_step(*sent.residual)
                                                 : Residual(sent.residual->values);
    Status followed = ResidualStore::rescale(*sent.residual, id.scale, sent.feedback.decay, residual);
    if (!followed && !passes(part, sent, followed.error())) return followed;
    if (!followed) {
      sent.state = SegmentState::kNotFinite;
      return {};
    }
  }
  TensorView view = as_encoded(part);
  std::vector<std::byte> dense;
  if (view.values == nullptr && sent.count > 0) {
    Result<std::vector<std::byte>> filled = dense_of(part.tensor);
    if (!filled) return name_part(part, filled.error());
    dense = std::move(*filled);
    view.values = dense.data();
  }
  if (sent.residual != nullptr && sent.feedback.changes_input()) {
    RETURN_IF_ERROR(advance(part, id, sent));
    view.values = sent.residual->velocity.after().data();
    view.dtype = DType::kF32;
    view.summed_dtype = part.own_dtype();
  }
  exec.stream = stream_of(options_.seed, id, part);
  if (const Codec* form = half_form(part, id.step, view, sent); form != nullptr) {
    sent.frame_version = half_form_version(sent.codec->info());
    sent.codec = form;
  }
  Result<EncodedPart> encoded = sent.codec->encode(view, residual, buffer, exec);
  if (const Codec* half = encoded ? half_codec(part, view, sent, *encoded) : nullptr; half != nullptr) {
    encoded = half->encode(view, {}, buffer, exec);
    sent.codec = half;
    sent.frame_version = kHalfValuesVersion;
  }
  if (!encoded) {
    ResidualStore::stay(residual);
    if (sent.residual != nullptr) sent.residual->velocity.drop();
  }
  Status settled = settle(part, encoded, buffer, sent);
  if (options_.measure_flow && measures_flow(id.step) && sent.state == SegmentState::kCoded && sent.keeps()) {
    flow = measure_flow(*sent.codec, view, sent.encoded, sent.residual->values, exec);
  }
  return settled;
}

Status PartEncoder::settle(const Named& part, const Result<EncodedPart>& encoded, const PartBuffer& buffer,
                           SentPart& sent) const {
  if (!encoded) {
    if (!passes(part, sent, encoded.error())) return name_part(part, encoded.error());
    sent.state = SegmentState::kNotFinite;
    return {};
  }
  assert(encoded->payload_bytes <= buffer.payload.size() && encoded->chunks <= buffer.chunk_ends.size());
  assert(!encoded->has_sums || encoded->chunks <= buffer.chunk_sums.size());
  sent.encoded = PartView{buffer.payload.first(encoded->payload_bytes),
                          buffer.chunk_ends.first(encoded->chunks), encoded->scalar, encoded->scalar2};
  if (encoded->has_sums) sent.sums = buffer.chunk_sums.first(encoded->chunks);
  sent.state = SegmentState::kCoded;
  return {};
}

Result<EncodeJob> PartEncoder::device_job(const Named& part, const MessageId& id, const PartBuffer& buffer,
                                          const SentPart& sent) const {
  EncodeJob job{.codec = sent.codec,
                .in = as_view(part.tensor),
                .stream = stream_of(options_.seed, id, part),
                .out = buffer};
  job.in.summed_dtype = part.summed_dtype;
  if (const ResidualStore::Entry* entry = sent.residual; entry != nullptr) {
    if (entry->in_step) {
      return wrong_state("part '" + std::string(part.name) +
                         "' is in the step already; a device encodes it once");
    }
    job.before = entry->on_device.get();
    job.after = entry->beside.get();
    job.factor = ResidualStore::factor_to(*entry, id.scale, sent.feedback.decay);
  } else if (codecs_.halves.of(part) != nullptr && !sent.codec->info().sparse) {
    job.carrier = part.own_dtype();
  }
  if (const Codec* form = half_form(part, id.step, job.in, sent); form != nullptr) job.codec = form;
  return job;
}

bool PartEncoder::goes_alone(const EncodeJob& job, SentPart& sent) const {
  if (sent.residual == nullptr || !job.is_zeros || codecs_.may_be(SegmentState::kNothing, *job.codec)) {
    return false;
  }
  sent.residual = nullptr;
  return true;
}

const Codec* PartEncoder::better_codec(const Named& part, const EncodeJob& job, const SentPart& sent) const {
  if (job.carrier == DType::kF32 || !job.encoded) return nullptr;
  if (!job.carries) return job.codec != sent.codec && job.in.dtype != job.carrier ? sent.codec : nullptr;
  const bool is_longer = job.encoded->payload_bytes > HalfCodecs::kValueBytes * job.in.count;
  return is_longer ? codecs_.halves.of(part) : nullptr;
}

Status PartEncoder::take(const Named& part, const MessageId& id, const EncodeJob& job, SentPart& sent) const {
  if (sent.residual != nullptr && job.is_zeros) return {};
  if (job.codec == codecs_.halves.of(part)) {
    sent.frame_version = kHalfValuesVersion;
  } else if (job.codec != sent.codec) {
    sent.frame_version = half_form_version(sent.codec->info());
  }
  assert(job.codec != nullptr);
  sent.codec = job.codec;
  RETURN_IF_ERROR(settle(part, job.encoded, job.out, sent));
  if (sent.residual != nullptr && sent.state == SegmentState::kCoded) sent.residual->take_step(id.scale);
  return {};
}

void PartEncoder::keep(const Named& part, const MessageId& id) {
  const TensorSlot& tensor = part.tensor;
  if (tensor.elements() == 0 || tensor.has_keys() || dtype_bytes(tensor.dtype) == 0) return;
  const Feedback feedback = feedback_of(part, id.step);
  const Result<ResidualStore::Entry*> entry = residual_for(part, codecs_.of(part, id.step), feedback);
  if (!entry || *entry == nullptr) return;
  Residual residual((*entry)->values);
  if (!ResidualStore::rescale(**entry, id.scale, 1.0F, residual)) return;
  (*entry)->fill();
  if (feedback.changes_input() && !has_only_zeros(tensor)) {
    Velocity& velocity = (*entry)->velocity;
    velocity.prepare(tensor.count);
    velocity.advance(tensor, {feedback, part.whole_elements(), id.scale, true});
    ResidualStore::add(**entry, velocity.after());
    return;
  }
  std::vector<float> widened;
  const auto* values = static_cast<const float*>(tensor.values);
  if (tensor.dtype != DType::kF32) {
    widened.resize(tensor.count);
    widen(tensor.values, tensor.dtype, tensor.count, widened.data());
    values = widened.data();
  }
  ResidualStore::add(**entry, {values, tensor.count});
}

void PartEncoder::fold(const SentPart& sent, MutBytes scratch) noexcept {
  ResidualStore::Entry* entry = sent.residual;
  if (sent.state != SegmentState::kCoded || entry == nullptr) return;
  entry->fill();
  assert(entry->values.size() == sent.count);
  const Exec exec{.scratch = scratch};
  const std::unique_ptr<float[]> values(new (std::nothrow) float[sent.count]);
  if (values == nullptr) {
    fold_in_place(*entry, sent, exec);
    return;
  }
  const TensorSlot slot{values.get(), sent.count, DType::kF32};
  if (!sent.codec->decode(sent.encoded, slot, Into::kOverwrite, 1.0F, exec)) return;
  ResidualStore::add(*entry, {values.get(), sent.count});
}

void PartEncoder::discharge(const SentPart& sent) noexcept {
  ResidualStore::Entry* entry = sent.residual;
  if (sent.state != SegmentState::kCoded || entry == nullptr) return;
  if (!sent.keeps() && entry->velocity.bytes() == 0) entry->clear();
}

PartUse PartEncoder::use_of(const SentPart& sent) noexcept {
  PartUse use{.name_hash = sent.name_hash,
              .first = sent.first,
              .elements = sent.count,
              .payload_bytes = sent.encoded.payload.size()};
  if (sent.residual != nullptr) {
    use.residual_bytes = sent.residual->value_bytes();
    use.momentum_bytes = sent.residual->velocity.bytes();
  }
  return use;
}

Status PartEncoder::clear_sent(const SentPart& sent, std::span<float> momentum) {
  assert(momentum.size() == sent.count);
  if (!sent.codec->info().sparse || sent.state != SegmentState::kCoded) return {};
  std::vector<float> values(momentum.size());
  const TensorSlot slot{values.data(), values.size(), DType::kF32};
  std::vector<std::byte> scratch(sent.codec->decode_scratch(slot));
  RETURN_IF_ERROR(sent.codec->decode(sent.encoded, slot, Into::kOverwrite, 1.0F, {.scratch = scratch}));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0.0F) momentum[i] = 0.0F;
  }
  return {};
}

void PartEncoder::mask(const SentPart& sent, MutBytes scratch) noexcept {
  if (sent.residual == nullptr || !sent.feedback.masking || sent.state != SegmentState::kCoded) return;
  if (!sent.codec->info().sparse) return;
  Velocity& velocity = sent.residual->velocity;
  if (!velocity.has_advanced()) return;
  const std::span<float> values = velocity.scratch();
  assert(values.size() == sent.count);
  const TensorSlot slot{values.data(), sent.count, DType::kF32};
  if (!sent.codec->decode(sent.encoded, slot, Into::kOverwrite, 1.0F, Exec{.scratch = scratch})) return;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0.0F) velocity.clear(i);
  }
}

// Without memory: the same sums, but where one is not finite (2^128 was passed) what was left is gone, too.
void PartEncoder::fold_in_place(ResidualStore::Entry& entry, const SentPart& sent,
                                const Exec& exec) noexcept {
  assert(entry.values.size() == sent.count);
  const TensorSlot slot{entry.values.data(), sent.count, DType::kF32};
  if (!sent.codec->decode(sent.encoded, slot, Into::kAccumulate, 1.0F, exec)) return;
  for (float& value : entry.values) {
    if (!std::isfinite(value)) value = 0.0F;
  }
}

}  // namespace deltawire
