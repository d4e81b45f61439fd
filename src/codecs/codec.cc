// What stands before every codec: the checks, 16-bit values, the floating-point mode.
#include "deltawire/codec.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "base/errors.h"
#include "base/float16.h"
#include "base/float_environment.h"
#include "codecs/part_checks.h"
#include "codecs/spec_string.h"

namespace deltawire {

namespace {

constexpr std::uint64_t kMaxPayloadBytes = std::numeric_limits<std::uint32_t>::max();

Status check_dtype(DType dtype, const CodecInfo& info) {
  assert(!info.dtypes.empty());
  if (std::ranges::find(info.dtypes, dtype) != info.dtypes.end()) return {};
  return fail(ErrorCode::kUnsupportedDType, std::string(info.name) + " takes " +
                                                list_of(info.dtypes, ", ", dtype_name) + ", not " +
                                                std::string(dtype_name(dtype)) + ": convert the tensor");
}

Status check_dims(const TensorView& part) {
  if (part.dims.empty()) return {};
  std::uint64_t product = 1;
  for (const std::uint64_t extent : part.dims) {
    product = product_or_max(product, extent);
  }
  if (product == part.elements()) return {};
  return invalid("the dims multiply to " + std::to_string(product) + " for a part of " +
                 std::to_string(part.elements()) + " elements: give its own, or none");
}

tl::unexpected<Error> bad_key(const TensorView& part, std::uint64_t i) {
  const std::uint32_t key = part.keys[i];
  const std::string where = "key " + std::to_string(key) + " at index " + std::to_string(i);
  if (key >= part.dimension) {
    return invalid(where + " is outside the tensor: keys must be below " + std::to_string(part.dimension));
  }
  return invalid(where + " is not above the key before it, " + std::to_string(part.keys[i - 1]) +
                 ": sort the pairs by key and add up those of equal keys");
}

// Whether all keys are below 2^31 and grow. Without a branch for each, so that vectors look at them: of such
// keys a difference is negative as a signed number where they grow.
bool are_ordered_below_half(const TensorView& part) {
  std::uint32_t all = part.keys[0];
  std::uint32_t less = ~std::uint32_t{0};
  for (std::uint64_t i = 1; i < part.count; ++i) {
    all |= part.keys[i];
    less &= part.keys[i - 1] - part.keys[i];
  }
  return ((all | ~less) & 0x80000000) == 0;
}

Status check_keys(const TensorView& part, const CodecInfo& info) {
  if (!part.has_keys()) return {};
  if (!info.key_value) {
    std::string remedy = "give a dense tensor";
    for (const CodecInfo* other : registered_codecs()) {
      if (other->key_value) remedy += ", or take " + std::string(other->name);
    }
    return invalid(std::string(info.name) + " has no key-value form: " + remedy);
  }
  if (part.count == 0) return {};
  if (are_ordered_below_half(part) && part.keys[part.count - 1] < part.dimension) return {};
  std::uint64_t first = 0;
  std::uint64_t least = 0;
  for (; first < part.count && part.keys[first] >= least && part.keys[first] < part.dimension; ++first) {
    least = std::uint64_t{part.keys[first]} + 1;
  }
  if (first == part.count) return {};
  return bad_key(part, first);
}

Status check_residual(const Residual& residual, const TensorView& part) {
  const std::uint64_t values = residual.before.size();
  if (values != residual.after.size()) {
    return invalid("the residual has " + std::to_string(values) + " values before and room for " +
                   std::to_string(residual.after.size()) + " after: give as many");
  }
  if (values == 0 || (values == part.count && !part.has_keys())) return {};
  const std::string has = "a residual of " + std::to_string(values) + " values for a ";
  if (part.has_keys()) {
    return invalid(has + "key-value part: error feedback needs the dense form; give no residual");
  }
  return invalid(has + "part of " + std::to_string(part.count) + ": give one per element, or none");
}

Status check_room(std::string_view what, std::uint64_t has, std::uint64_t needs) {
  if (has >= needs) return {};
  return fail(ErrorCode::kOutputTooSmall, std::string(what) + " has room for " + std::to_string(has) +
                                              ", needs " + std::to_string(needs) + ": size it with sizes()");
}

Status check_scratch(MutBytes scratch, std::uint64_t needs) {
  RETURN_IF_ERROR(check_room("scratch (bytes)", scratch.size(), needs));
  if (needs == 0 || reinterpret_cast<std::uintptr_t>(scratch.data()) % kScratchAlignment == 0) return {};
  return invalid("scratch must be aligned to " + std::to_string(kScratchAlignment) + " bytes");
}

Status check_buffer(const PartBuffer& out, const Sizes& sizes) {
  if (sizes.payload_bytes > kMaxPayloadBytes) {
    return fail(ErrorCode::kLimit, "a part may take " + std::to_string(sizes.payload_bytes) +
                                       " bytes, more than a chunk end of 32 bits can say: cut the tensor");
  }
  RETURN_IF_ERROR(check_room("payload (bytes)", out.payload.size(), sizes.payload_bytes));
  return check_room("chunk_ends", out.chunk_ends.size(), sizes.chunks);
}

// The first element that isn't finite, of which there is one.
Error name_not_finite(const CodecInfo& info, const PartSource& part) {
  const auto x = [&part](std::uint64_t i) {
    return part.residual != nullptr ? part.in[i] + part.residual[i] : part.in[i];
  };
  std::uint64_t i = 0;
  while (i + 1 < part.count && std::isfinite(x(i))) ++i;
  assert(!std::isfinite(x(i)));
  std::string message = "element " + std::to_string(i);
  if (part.view.has_keys())
    message = "the value at index " + std::to_string(i) + " (key " + std::to_string(part.view.keys[i]) + ")";
  if (!std::isfinite(part.in[i])) {
    message += " of the input is " + number_text(part.in[i]);
  } else {
    message += " is " + number_text(x(i)) + " once the residual " + number_text(part.residual[i]) +
               " is added to the input " + number_text(part.in[i]);
  }
  return Error{ErrorCode::kNotFinite, message + ": " + std::string(info.name) + " carries finite values only",
               kNoSuspect};
}

Status check_index(const PartView& in, std::uint64_t count, const CodecInfo& info) {
  if (info.chunk_elements > 0) {
    if (auto ok = check_chunks(in, count, info.chunk_elements); !ok) return ok;
  } else {
    RETURN_IF_ERROR(check_chunk_ends(in));
    if (in.chunk_ends.empty() != (count == 0)) {
      return corrupt(std::string(info.name) + ": " + std::to_string(in.chunk_ends.size()) +
                     " chunks for a part of " + std::to_string(count) + " elements");
    }
  }
  const int scalars = count > 0 ? info.scalars : 0;
  if ((in.scalar == 0 || scalars >= 1) && (in.scalar2 == 0 || scalars >= 2)) return {};
  return corrupt("the part's scalars are " + std::to_string(in.scalar) + " and " +
                 std::to_string(in.scalar2) + ", but " + std::string(info.name) + " has " +
                 std::to_string(scalars) + (count == 0 && info.scalars > 0 ? " for an empty part" : ""));
}

std::uint64_t widened_bytes(DType dtype, std::uint64_t count) noexcept {
  if (dtype == DType::kF32) return 0;
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max() / 8;
  const std::uint64_t bytes = std::min(count, kMost) * sizeof(float);
  return ceil_div(bytes, kScratchAlignment) * kScratchAlignment;
}

// Whether a codec has written what it may: within its bounds, chunks one after another.
[[maybe_unused]] bool keeps_bounds(const EncodedPart& part, const PartBuffer& out, const Sizes& bounds,
                                   const CodecInfo& info) noexcept {
  const auto ends = out.chunk_ends.first(part.chunks);
  return part.payload_bytes <= bounds.payload_bytes && part.chunks <= bounds.chunks && !ends.empty() &&
         ends.front() > 0 && ends.back() == part.payload_bytes &&
         std::ranges::adjacent_find(ends, std::ranges::greater_equal()) == ends.end() &&
         (info.scalars > 0 || part.scalar == 0) && (info.scalars > 1 || part.scalar2 == 0) &&
         (!part.has_sums || part.chunks <= out.chunk_sums.size());
}

}  // namespace

Result<std::unique_ptr<const Codec>> make_half_form(const Codec& codec, DType dtype) {
  assert(codec.info().half_form && (dtype == DType::kBF16 || dtype == DType::kF16));
  return make_codec(codec.spec() + (dtype == DType::kBF16 ? ",values=bf16" : ",values=fp16"));
}

tl::unexpected<Error> Codec::not_finite() {
  return fail(ErrorCode::kNotFinite, "an element is not finite");
}

Sizes Codec::sizes(const TensorView& part) const noexcept {
  Sizes sizes = do_sizes(part);
  sizes.scratch_bytes = std::max(sizes.scratch_bytes, do_decode_scratch(part.elements()));
  sizes.scratch_bytes += widened_bytes(part.dtype, part.count);
  return sizes;
}

Result<EncodedPart> Codec::encode(const TensorView& part, Residual residual, const PartBuffer& out,
                                  const Exec& exec) const {
  const Sizes bounds = sizes(part);
  RETURN_IF_ERROR(check_dtype(part.dtype, info_));
  RETURN_IF_ERROR(check_dims(part));
  RETURN_IF_ERROR(check_residual(residual, part));
  RETURN_IF_ERROR(check_keys(part, info_));
  RETURN_IF_ERROR(check_buffer(out, bounds));
  RETURN_IF_ERROR(check_scratch(exec.scratch, bounds.scratch_bytes));
  if (part.elements() == 0) return EncodedPart{};
  const FloatEnvironment environment;
  PartSource source{static_cast<const float*>(part.values), nullptr, nullptr, part.count, part};
  if (!residual.before.empty()) {
    source.residual = residual.before.data();
    source.left = residual.after.data();
  }
  Exec rest = exec;
  auto* const widened = reinterpret_cast<float*>(exec.scratch.data());
  bool is_added = false;
  if (part.dtype != DType::kF32) {
    source.in = widened;
    rest.scratch = exec.scratch.subspan(widened_bytes(part.dtype, part.count));
    is_added = info_.error_feedback && source.left != source.residual;
    if (is_added) {
      widen_and_add(part.values, part.dtype, part.count, source.residual, source.left);
    } else {
      widen(part.values, part.dtype, part.count, widened);
    }
  }
  const PartSource added_up{source.left, nullptr, source.left, source.count, source.view};
  auto encoded = do_encode(is_added ? added_up : source, out, rest);
  assert(!encoded || keeps_bounds(*encoded, out, bounds, info_));
  if (encoded || encoded.error().code != ErrorCode::kNotFinite) return encoded;
  if (is_added) widen(part.values, part.dtype, part.count, widened);
  return tl::unexpected<Error>(name_not_finite(info_, source));
}

std::uint64_t Codec::decode_scratch(const TensorSlot& out) const noexcept {
  return widened_bytes(out.dtype, out.count) + do_decode_scratch(out.count);
}

std::uint64_t Codec::do_decode_scratch(std::uint64_t) const noexcept {
  return 0;
}

Status Codec::decode(const PartView& in, const TensorSlot& out, Into into, float scale,
                     const Exec& exec) const {
  RETURN_IF_ERROR(check_dtype(out.dtype, info_));
  if (out.has_keys()) return invalid("the slot has keys: decode_pairs decodes into key-value form");
  const bool direct = out.dtype == DType::kF32;
  if (!direct && into == Into::kAccumulate) {
    return fail(ErrorCode::kUnsupportedDType, "a slot of " + std::string(dtype_name(out.dtype)) +
                                                  " can't accumulate: add up in float32, then convert");
  }
  RETURN_IF_ERROR(check_scratch(exec.scratch, decode_scratch(out)));
  RETURN_IF_ERROR(check_index(in, out.count, info_));
  const FloatEnvironment environment;
  auto* slot = direct ? static_cast<float*>(out.values) : reinterpret_cast<float*>(exec.scratch.data());
  const PartTarget target{slot, out.count, scale, into == Into::kAccumulate};
  Exec rest = exec;
  rest.scratch = exec.scratch.subspan(widened_bytes(out.dtype, out.count));
  if (auto ok = do_decode(in, target, rest); !ok || direct) return ok;
  const std::uint64_t fits = narrow(slot, out.count, out.dtype, out.values);
  if (fits == out.count) return {};
  return fail(ErrorCode::kRange, "element " + std::to_string(fits) + " is " + number_text(slot[fits]) +
                                     ", beyond " + std::string(dtype_name(out.dtype)) +
                                     ": decode into float32");
}

Result<std::uint64_t> Codec::decode_pairs(const PartView& in, const TensorSlot& out, float scale,
                                          const Exec&) const {
  if (!info_.key_value) return Codec::do_decode_pairs(in, out, scale);
  if (out.dtype != DType::kF32) {
    return fail(ErrorCode::kUnsupportedDType, "pairs are decoded as float32, not " +
                                                  std::string(dtype_name(out.dtype)) + ": convert them then");
  }
  if (out.count > 0 && out.keys == nullptr) {
    return invalid("the slot has no keys: decode dense tensors with decode");
  }
  RETURN_IF_ERROR(check_index(in, out.dimension, info_));
  const FloatEnvironment environment;
  return do_decode_pairs(in, out, scale);
}

Status Codec::describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const {
  RETURN_IF_ERROR(check_index(in, count, info_));
  const FloatEnvironment environment;
  return do_describe(in, count, sections);
}

Result<std::uint64_t> Codec::do_decode_pairs(const PartView&, const TensorSlot&, float) const {
  return invalid("codec " + std::string(info_.name) + " has no key-value form; decode into a dense tensor");
}

}  // namespace deltawire
