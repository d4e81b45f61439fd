#include "channel/part_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <new>
#include <span>
#include <string>

namespace deltawire {
namespace {

tl::unexpected<Error> name_part(const Named& part, const Error& error) {
  return fail(error.code, "part '" + std::string(part.name) + "': " + error.message);
}

// Zeros of either sign, looked at as bits: a caller's mode may take subnormals for zeros.
bool all_zeros(const TensorSlot& tensor) {
  if (tensor.dtype != DType::kF32) return false;
  const auto* values = static_cast<const float*>(tensor.values);
  constexpr std::uint64_t kBlock = 1024;
  for (std::uint64_t begin = 0; begin < tensor.count; begin += kBlock) {
    std::uint32_t set = 0;
    const std::uint64_t end = std::min(tensor.count, begin + kBlock);
    for (std::uint64_t i = begin; i < end; ++i) set |= std::bit_cast<std::uint32_t>(values[i]) << 1;
    if (set != 0) return false;
  }
  return true;
}

}  // namespace

TensorView PartEncoder::as_encoded(const Named& part) const {
  if (part.tensor.has_keys() && codecs_.is_raw(part.tensor.dimension)) {
    return TensorView{nullptr, part.tensor.dimension, part.tensor.dtype};
  }
  return as_view(part.tensor);
}

Status PartEncoder::fill_dense(const TensorSlot& pairs) {
  dense_.assign(pairs.dimension, 0.0F);
  const auto* values = static_cast<const float*>(pairs.values);
  for (std::uint64_t i = 0; i < pairs.count; ++i) {
    if (pairs.keys[i] >= pairs.dimension || (i > 0 && pairs.keys[i] <= pairs.keys[i - 1])) {
      return fail(ErrorCode::kInvalidArgument, "key " + std::to_string(pairs.keys[i]) + " at index " +
                                                   std::to_string(i) + " is out of order or not below " +
                                                   std::to_string(pairs.dimension) + "; sort the keys");
    }
    dense_[pairs.keys[i]] = values[i];
  }
  return {};
}

bool PartEncoder::has_residual(const Named& part) const {
  return codecs_.error_feedback && codecs_.of(part.tensor.elements()).info().error_feedback;
}

Result<ResidualStore::Entry*> PartEncoder::residual_for(const Named& part) {
  if (part.tensor.has_keys()) {
    return fail(ErrorCode::kInvalidArgument, "part '" + std::string(part.name) +
                                                 "' is in key-value form, which has no residual; turn " +
                                                 "the codec's residual off");
  }
  return residuals_.obtain(part.name, part.first, part.tensor.count);
}

bool PartEncoder::passes(const Named& part, const Error& error) const {
  return (error.code == ErrorCode::kNotFinite || error.code == ErrorCode::kRange) &&
         !part.tensor.has_keys() &&
         codecs_.may_be(SegmentState::kNotFinite, codecs_.of(part.tensor.elements()));
}

Result<SentPart> PartEncoder::encode(const Named& part, float scale, const PartBuffer& buffer) {
  const std::uint64_t elements = part.tensor.elements();
  const Codec& codec = codecs_.of(elements);
  SentPart sent;
  sent.name = part.name;
  sent.first = part.first;
  sent.count = elements;
  sent.codec = &codec;
  std::span<float> residual;
  if (has_residual(part)) {
    const Result<ResidualStore::Entry*> entry = residual_for(part);
    if (!entry) return forward_error(entry);
    if (all_zeros(part.tensor)) {
      sent.state = SegmentState::kNothing;
      return sent;
    }
    if (options_.revert == Revert::kExact) ResidualStore::save_for_step(**entry);
    const Status followed = ResidualStore::rescale(**entry, scale);
    if (!followed && !passes(part, followed.error())) return forward_error(followed);
    if (!followed) {
      sent.state = SegmentState::kNotFinite;
      return sent;
    }
    sent.residual = *entry;
    residual = (*entry)->values;
  }
  TensorView view = as_encoded(part);
  if (view.values == nullptr && elements > 0) {
    if (Status filled = fill_dense(part.tensor); !filled) return name_part(part, filled.error());
    view.values = dense_.data();
  }
  const Result<EncodedPart> encoded = codec.encode(view, residual, buffer);
  if (!encoded && passes(part, encoded.error())) {
    sent.state = SegmentState::kNotFinite;
    return sent;
  }
  if (!encoded) return name_part(part, encoded.error());
  sent.encoded = PartView{buffer.payload.first(encoded->payload_bytes),
                          buffer.chunk_ends.first(encoded->chunks), encoded->scalar, encoded->scalar2};
  return sent;
}

void PartEncoder::keep(const Named& part, float scale) {
  if (part.tensor.elements() == 0 || part.tensor.has_keys() || part.tensor.dtype != DType::kF32) return;
  if (!has_residual(part)) return;
  const Result<ResidualStore::Entry*> entry = residual_for(part);
  if (!entry || !ResidualStore::rescale(**entry, scale)) return;
  ResidualStore::add(**entry, {static_cast<const float*>(part.tensor.values), part.tensor.count});
}

void PartEncoder::fold(const SentPart& sent) noexcept {
  ResidualStore::Entry* entry = sent.residual;
  if (sent.state != SegmentState::kCoded || entry == nullptr) return;
  const std::unique_ptr<float[]> values(new (std::nothrow) float[sent.count]);
  if (values == nullptr) {
    fold_in_place(*entry, sent);
    return;
  }
  const TensorSlot slot{values.get(), sent.count, DType::kF32};
  if (!sent.codec->decode(sent.encoded, slot, Into::kOverwrite, 1.0F)) return;
  ResidualStore::add(*entry, {values.get(), sent.count});
}

// Without memory: the same sums, but where one is not finite (2^128 was passed) what was left is gone, too.
void PartEncoder::fold_in_place(ResidualStore::Entry& entry, const SentPart& sent) noexcept {
  const TensorSlot slot{entry.values.data(), sent.count, DType::kF32};
  if (!sent.codec->decode(sent.encoded, slot, Into::kAccumulate, 1.0F)) return;
  for (float& value : entry.values) {
    if (!std::isfinite(value)) value = 0.0F;
  }
}

}  // namespace deltawire
