#include <cstdint>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/qsgd/qsgd_ops.h"

namespace deltawire::qsgd::DELTAWIRE_TARGET {

namespace {

Spread sum_up(const Addends& x) {
  return spread_of(x);
}

// What a level stands for: at most the norm, so never Inf.
float magnitude_of(std::uint32_t level, float norm, const Plan& plan) noexcept {
  return static_cast<float>(static_cast<double>(norm) * level / plan.levels);
}

// |x| / norm * s, rounded down or up by the draw. The product is exact, the quotient at most s.
std::uint32_t level_of(float x, float norm, const Plan& plan, double u) noexcept {
  const auto magnitude = static_cast<double>(bit_cast<float>(magnitude_bits(x)));
  const double exact = magnitude * plan.levels / static_cast<double>(norm);
  const auto low = static_cast<std::uint32_t>(exact);
  return low + (u < exact - low ? 1U : 0U);
}

void put(BitWriter& writer, const EliasBits& code) noexcept {
  writer.put(code.value, code.bits);
}

// A bucket with a norm: the gap to each level above 0, its sign, the level; at last the gap to the end.
void encode_bucket(const Addends& x, const Draws& draws, const Plan& plan, float norm,
                   BitWriter& writer) noexcept {
  std::uint32_t next = 0;  // the position after the last one
  for (std::uint32_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    const std::uint32_t level = level_of(sum, norm, plan, uniform_at(draws, i));
    const float magnitude = magnitude_of(level, norm, plan);
    if (x.left != nullptr) x.left[i] = sum - (sum < 0 ? -magnitude : magnitude);
    if (level == 0) continue;
    put(writer, code_of(i + 1 - next, plan));
    writer.put(sum < 0 ? 1 : 0, 1);
    put(writer, code_of(level, plan));
    next = i + 1;
  }
  const auto count = static_cast<std::uint32_t>(x.count);
  if (next < count) put(writer, code_of(count + 1 - next, plan));
}

// Without a norm all are 0, and what is left of them is nothing.
void leave_zeros(const Addends& x) noexcept {
  for (std::uint64_t i = 0; i < x.count && x.left != nullptr; ++i) x.left[i] = sum_at(x, i);
}

std::uint64_t encode(const Addends& x, const Draws& draws, const Plan& plan, const float* norms,
                     std::byte* out, std::uint64_t room) {
  const std::uint64_t head = buckets_of(x.count, plan) * kNormBytes;
  BitWriter writer(out + head, room - head);
  for (std::uint64_t at = 0, i = 0; at < x.count; at += plan.bucket, ++i) {
    const std::uint64_t rest = x.count - at;
    const Addends bucket = some_of(x, at, rest < plan.bucket ? rest : plan.bucket);
    store_le(out + i * kNormBytes, bit_cast<std::uint32_t>(norms[i]));
    if (norms[i] == 0) {
      leave_zeros(bucket);
    } else {
      encode_bucket(bucket, {draws.random, draws.first + at}, plan, norms[i], writer);
    }
  }
  return head + writer.finish();
}

std::uint32_t read_number(BitReader& reader, const Plan& plan) noexcept {
  return plan.coding == Coding::kGamma ? read_gamma(reader) : read_omega(reader);
}

void put_value(const DecodeTarget& target, std::uint32_t i, float value) noexcept {
  if (target.slot == nullptr) return;
  float& slot = target.slot[i];
  slot = target.accumulate ? slot + target.scale * value : target.scale * value;
}

Fault decode_bucket(BitReader& reader, const Plan& plan, float norm, const DecodeTarget& target,
                    Decoded& decoded) noexcept {
  for (std::uint32_t next = 0; next < target.count;) {
    const std::uint32_t gap = read_number(reader, plan);
    if (reader.exhausted()) return Fault::kTruncated;
    if (gap == 0 || gap > target.count + 1 - next) return Fault::kPosition;
    decoded.gap_bits += code_of(gap, plan).bits;
    next += gap;
    if (next > target.count) break;
    const bool negative = reader.get(1) != 0;
    const std::uint32_t level = read_number(reader, plan);
    if (reader.exhausted()) return Fault::kTruncated;
    if (level == 0 || level > plan.levels) return Fault::kLevel;
    decoded.signs += 1;
    decoded.level_bits += code_of(level, plan).bits;
    const float magnitude = magnitude_of(level, norm, plan);
    put_value(target, next - 1, negative ? -magnitude : magnitude);
  }
  return Fault::kNone;
}

Fault check_norms(const std::byte* norms, std::uint64_t buckets) noexcept {
  for (std::uint64_t i = 0; i < buckets; ++i) {
    if (load_le<std::uint32_t>(norms + i * kNormBytes) >= kInfinityBits) return Fault::kNorm;
  }
  return Fault::kNone;
}

Decoded decode(const ChunkBytes& chunk, const Plan& plan, const DecodeTarget& target) {
  Decoded decoded{};
  const std::uint64_t head = buckets_of(target.count, plan) * kNormBytes;
  decoded.fault = chunk.bytes < head ? Fault::kTruncated : check_norms(chunk.at, head / kNormBytes);
  if (decoded.fault != Fault::kNone) return decoded;
  for (std::uint32_t i = 0; i < target.count && target.slot != nullptr && !target.accumulate; ++i) {
    target.slot[i] = 0;
  }
  BitReader reader(chunk.at + head, chunk.bytes - head);
  for (std::uint32_t at = 0; at < target.count; at += plan.bucket) {
    const auto norm = bit_cast<float>(load_le<std::uint32_t>(chunk.at + at / plan.bucket * kNormBytes));
    if (norm == 0) continue;
    DecodeTarget bucket = target;
    bucket.slot = target.slot != nullptr ? target.slot + at : nullptr;
    bucket.count = target.count - at < plan.bucket ? target.count - at : plan.bucket;
    decoded.fault = decode_bucket(reader, plan, norm, bucket, decoded);
    if (decoded.fault != Fault::kNone) return decoded;
  }
  decoded.fault = reader.at_clean_end() ? Fault::kNone : Fault::kPadding;
  return decoded;
}

}  // namespace

extern constexpr Kernels kKernels = {sum_up, encode, decode};

}  // namespace deltawire::qsgd::DELTAWIRE_TARGET
