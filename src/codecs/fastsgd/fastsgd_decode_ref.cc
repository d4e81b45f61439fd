// Reference kernel: decoding a chunk of hostile bytes. Writing is in fastsgd_write_ref.cc.
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd {

namespace {

// Scaled values of the codes from `base` on, as far as they are allowed.
struct Values {
  float of_code[kCodes];
  std::uint32_t allowed = 0;

  Values(const DecodeRules& rules, const Head& head, float scale) noexcept {
    const std::uint32_t codes = std::uint32_t{1} << head.code_bits;
    for (; allowed < codes && head.base + allowed <= rules.last_code; ++allowed) {
      const float value = code_value(rules.sum, rules.powers, head.base + allowed);
      if (std::bit_cast<std::uint32_t>(value) == 0) break;
      of_code[allowed] = value * scale;
    }
  }
};

// Turns the pairs of a chunk from bits into keys and values, one at a time.
class PairReader {
 public:
  PairReader(const ChunkBytes& chunk, const Head& head, const DecodeRules& rules, const Values& values,
             std::uint32_t value_bytes) noexcept
      : head_(head),
        rules_(rules),
        values_(values),
        lengths_(head.key_bits, rules.flag_bits),
        codes_({chunk.at + kHeadBytes, value_bytes}),
        gaps_({chunk.at + kHeadBytes + value_bytes, chunk.bytes - kHeadBytes - value_bytes}) {}

  Fault first(std::uint64_t least_key) noexcept {
    key_ = head_.first_key;
    return key_ < least_key || key_ >= rules_.dimension ? Fault::kKey : next_value();
  }

  Fault next() noexcept {
    std::uint32_t gap = 0;
    if (head_.key_bits > 0) {
      const auto flag = static_cast<std::uint32_t>(gaps_.get(rules_.flag_bits));
      gap = static_cast<std::uint32_t>(gaps_.get(lengths_.of_flag[flag]));
      if (gaps_.exhausted()) return Fault::kTruncated;
      if (flag != lengths_.flag_of[std::bit_width(gap)]) return Fault::kFlag;
      all_gaps_ |= gap;
    }
    key_ += std::uint64_t{gap} + 1;
    return key_ >= rules_.dimension ? Fault::kKey : next_value();
  }

  Fault finish() noexcept {
    const std::uint32_t span = highest_ - lowest_;
    if (lowest_ != 0 || static_cast<unsigned>(std::bit_width(span)) != head_.code_bits) {
      return Fault::kCodeRange;
    }
    if (static_cast<unsigned>(std::bit_width(all_gaps_)) != head_.key_bits) return Fault::kKeyBits;
    return codes_.at_clean_end() && gaps_.at_clean_end() ? Fault::kNone : Fault::kPadding;
  }

  std::uint64_t key() const noexcept { return key_; }
  float value() const noexcept { return value_; }

 private:
  Fault next_value() noexcept {
    const auto word = static_cast<std::uint32_t>(codes_.get(head_.code_bits + 1));
    const std::uint32_t code = word & ((1U << head_.code_bits) - 1);
    if (code >= values_.allowed) return Fault::kCode;
    lowest_ = code < lowest_ ? code : lowest_;
    highest_ = code > highest_ ? code : highest_;
    const float magnitude = values_.of_code[code];
    value_ = word >> head_.code_bits != 0 ? -magnitude : magnitude;
    return Fault::kNone;
  }

  const Head& head_;
  const DecodeRules& rules_;
  const Values& values_;
  GapLengths lengths_;
  BitReader codes_;
  BitReader gaps_;
  std::uint64_t key_ = 0;
  float value_ = 0;
  std::uint32_t lowest_ = kMaxCode;
  std::uint32_t highest_ = 0;
  std::uint32_t all_gaps_ = 0;
};

template <Sink kSink>
void put(const PairReader& pair, std::uint32_t i, DecodeTarget& target) noexcept {
  if constexpr (kSink == Sink::kDense) target.values[pair.key()] = pair.value();
  if constexpr (kSink == Sink::kDenseAdd) target.values[pair.key()] += pair.value();
  if constexpr (kSink == Sink::kPairs) {
    target.keys[target.pairs + i] = static_cast<std::uint32_t>(pair.key());
    target.values[target.pairs + i] = pair.value();
  }
}

template <Sink kSink>
Fault read_pairs(PairReader& reader, std::uint32_t pairs, DecodeTarget& target) noexcept {
  if (kSink == Sink::kPairs && pairs > target.capacity - target.pairs) return Fault::kNoRoom;
  Fault fault = reader.first(target.least_key);
  for (std::uint32_t i = 0; fault == Fault::kNone; fault = reader.next()) {
    put<kSink>(reader, i, target);
    if (++i == pairs) break;
  }
  if (fault != Fault::kNone) return fault;
  target.pairs += pairs;
  target.least_key = reader.key() + 1;
  return reader.finish();
}

}  // namespace

Fault read_head_ref(const ChunkBytes& chunk, bool is_first, bool is_last, Head& head) {
  if (chunk.bytes < kEmptyHeadBytes) return Fault::kTruncated;
  head.pairs = load_le<std::uint16_t>(chunk.at);
  if (head.pairs > kChunkPairs || (!is_last && head.pairs != kChunkPairs)) return Fault::kPairCount;
  if (head.pairs == 0) {
    if (!is_first) return Fault::kPairCount;
    return chunk.bytes > kEmptyHeadBytes ? Fault::kTrailingBytes : Fault::kNone;
  }
  if (chunk.bytes < kHeadBytes) return Fault::kTruncated;
  const std::uint32_t codes = load_le<std::uint16_t>(chunk.at + 2);
  head.base = codes & kMaxCode;
  head.code_bits = codes >> kMaxCodeBits;
  head.key_bits = std::to_integer<unsigned>(chunk.at[4]);
  head.first_key = load_le<std::uint32_t>(chunk.at + 5);
  return head.code_bits > kMaxCodeBits || head.key_bits > kMaxKeyBits ? Fault::kHead : Fault::kNone;
}

Fault decode_chunk_ref(const ChunkBytes& chunk, const DecodeRules& rules, DecodeTarget& target) {
  Head head;
  const Fault wrong_head = read_head_ref(chunk, target.least_key == 0, target.is_last, head);
  if (wrong_head != Fault::kNone) return wrong_head;
  if (head.pairs == 0) return Fault::kNone;
  const std::uint32_t value_bytes = (head.pairs * (head.code_bits + 1) + 7) / 8;
  if (value_bytes > chunk.bytes - kHeadBytes) return Fault::kTruncated;
  const Values values(rules, head, target.scale);
  PairReader reader(chunk, head, rules, values, value_bytes);
  switch (target.sink) {
    case Sink::kDense: return read_pairs<Sink::kDense>(reader, head.pairs, target);
    case Sink::kDenseAdd: return read_pairs<Sink::kDenseAdd>(reader, head.pairs, target);
    case Sink::kPairs: return read_pairs<Sink::kPairs>(reader, head.pairs, target);
    default: return read_pairs<Sink::kNothing>(reader, head.pairs, target);
  }
}

}  // namespace deltawire::fastsgd
