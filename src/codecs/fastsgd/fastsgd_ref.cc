// Reference kernels: pairs to a chunk's three streams of bits and back. The sums are in fastsgd_sums_ref.cc.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// Encoding: which values are sent, their codes, and the streams.

namespace {

constexpr std::uint32_t kGroup = 32;  // values that are looked at together: most groups have nothing to send

// Stages what a group of `count` values from `at` on has to send, behind `pairs` others.
template <bool kResidual, bool kKeys>
std::uint32_t collect_group(const PairInput& input, std::uint64_t at, std::uint32_t count, std::uint32_t cut,
                            const Staging& staging, std::uint32_t pairs) noexcept {
  float values[kGroup];
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    float x = input.in[at + i];
    if constexpr (kResidual) x += input.residual[at + i];
    if constexpr (kResidual) input.left[at + i] = x;
    values[i] = x;
    const auto bits = static_cast<std::int32_t>(bit_cast<std::uint32_t>(x) & kMagnitudeMask);
    kept |= bits >= static_cast<std::int32_t>(cut) ? 1U : 0U;
  }
  if (kept == 0) return pairs;
  for (std::uint32_t i = 0; i < count; ++i) {  // without a branch: written always, counted if kept
    staging.keys[pairs] = kKeys ? input.keys[at + i] : static_cast<std::uint32_t>(at + i);
    staging.values[pairs] = values[i];
    pairs += (bit_cast<std::uint32_t>(values[i]) & kMagnitudeMask) >= cut ? 1U : 0U;
  }
  return pairs;
}

template <bool kResidual, bool kKeys>
Collected collect_chunk(const PairInput& input, std::uint64_t& at, std::uint32_t cut,
                        const Staging& staging) noexcept {
  std::uint32_t pairs = 0;
  while (at < input.count && pairs < kChunkPairs) {
    const std::uint64_t left = input.count - at;
    const std::uint32_t room = kChunkPairs - pairs;
    std::uint32_t count = left < kGroup ? static_cast<std::uint32_t>(left) : kGroup;
    count = room < count ? room : count;
    pairs = count == kGroup ? collect_group<kResidual, kKeys>(input, at, kGroup, cut, staging, pairs)
                            : collect_group<kResidual, kKeys>(input, at, count, cut, staging, pairs);
    at += count;
  }
  return {staging.keys, staging.values, pairs, at};
}

}  // namespace

Collected collect(const PairInput& input, std::uint64_t& at, std::uint32_t cut, const Staging& staging) {
  if (input.keys != nullptr) return collect_chunk<false, true>(input, at, cut, staging);
  return input.residual != nullptr ? collect_chunk<true, false>(input, at, cut, staging)
                                   : collect_chunk<false, false>(input, at, cut, staging);
}

CodeRange quantize(const PairInput& input, const Codebook& book, const Collected& pairs,
                   std::uint16_t* codes) {
  CodeRange range{kMaxCode, 0};
  for (std::uint32_t i = 0; i < pairs.pairs; ++i) {
    const auto value = bit_cast<std::uint32_t>(pairs.values[i]);
    const std::uint32_t bits = value & kMagnitudeMask;
    const std::uint32_t sign = value & ~kMagnitudeMask;
    std::uint32_t code = book.starts[bits >> kStartShift];
    code += book.values[code] > bits ? 1 : 0;  // up to b = 1.03 that is all, and no branch to guess
    while (book.values[code] > bits) ++code;
    codes[i] = static_cast<std::uint16_t>(code | sign >> 16);
    range.lowest = code < range.lowest ? code : range.lowest;
    range.highest = code > range.highest ? code : range.highest;
    if (input.left != nullptr) {
      input.left[pairs.keys[i]] = bit_cast<float>(value) - bit_cast<float>(book.values[code] | sign);
    }
  }
  return range;
}

std::byte* write_values(const ChunkPairs& chunk, unsigned code_bits, std::byte* out) {
  Appender bits(out);
  for (std::uint32_t i = 0; i < chunk.pairs; ++i) {
    const std::uint32_t code = (chunk.codes[i] & ~std::uint32_t{kSignBit}) - chunk.range.lowest;
    const std::uint32_t sign = (chunk.codes[i] & kSignBit) != 0 ? 1 : 0;
    bits.put(code | sign << code_bits, code_bits + 1);
  }
  return bits.finish();
}

std::byte* write_gaps(const ChunkPairs& chunk, unsigned key_bits, unsigned flag_bits, std::byte* out) {
  const GapLengths lengths(key_bits, flag_bits);
  Appender flags(out);
  for (std::uint32_t i = 1; i < chunk.pairs; ++i) {
    flags.put(lengths.flag_of[bit_width(chunk.gap_at(i))], flag_bits);
  }
  Appender gaps(flags.finish());
  for (std::uint32_t i = 1; i < chunk.pairs; ++i) {
    const std::uint32_t gap = chunk.gap_at(i);
    gaps.put(gap, lengths.of_flag[lengths.flag_of[bit_width(gap)]]);
  }
  return gaps.finish();
}

// Decoding a chunk of hostile bytes, and the values of keys that have been decoded before.

namespace {

// Reads values, scaled and with their signs, and keeps what shows whether their codes are as the head states.
class CodeReader {
 public:
  CodeReader(const DecodeRules& rules, const Head& head, float scale, const BitWindow& values) noexcept
      : codes_(values), code_bits_(head.code_bits) {
    const std::uint32_t codes = std::uint32_t{1} << head.code_bits;
    for (; allowed_ < codes && head.base + allowed_ <= rules.last_code; ++allowed_) {
      const float value = code_value(rules.sum, rules.powers, head.base + allowed_);
      if (bit_cast<std::uint32_t>(value) == 0) break;
      of_code_[allowed_] = value * scale;
    }
  }

  // False if the next code isn't allowed.
  [[gnu::always_inline]] bool next(float& value) noexcept {
    const std::uint64_t word = codes_.peek();
    const auto code = static_cast<std::uint32_t>(word & ((1U << code_bits_) - 1));
    if (code >= allowed_) return false;
    codes_.position += code_bits_ + 1;
    lowest_ = code < lowest_ ? code : lowest_;
    highest_ = code > highest_ ? code : highest_;
    const auto sign = static_cast<std::uint32_t>(word >> code_bits_ & 1) << 31;
    value = bit_cast<float>(bit_cast<std::uint32_t>(of_code_[code]) ^ sign);
    return true;
  }

  // Whether the codes that were read begin at the base, and the largest needs all bits.
  [[gnu::always_inline]] bool fill_range() const noexcept {
    return lowest_ == 0 && bit_width(highest_) == code_bits_;
  }

  [[gnu::always_inline]] bool at_clean_end() const noexcept { return codes_.at_clean_end(); }

 private:
  float of_code_[kCodes];
  std::uint32_t allowed_ = 0;
  BitWindow codes_;
  unsigned code_bits_;
  std::uint32_t lowest_ = kMaxCode;
  std::uint32_t highest_ = 0;
};

// Reads the flag and the gap of the next key.
struct GapReader {
  BitWindow flags;
  BitWindow gaps;
  unsigned flag_bits;
  std::uint32_t all_gaps = 0;

  Fault next(const GapLengths& lengths, std::uint64_t& gap) noexcept {
    const auto flag = static_cast<std::uint32_t>(flags.peek() & ((1U << flag_bits) - 1));
    flags.position += flag_bits;
    const unsigned length = lengths.of_flag[flag];
    gap = gaps.peek() & ((std::uint64_t{1} << length) - 1);
    gaps.position += length;
    if (gaps.exhausted()) return &faults::kTruncated;
    if (gap < lengths.least[flag]) return &faults::kFlag;
    all_gaps |= static_cast<std::uint32_t>(gap);
    return nullptr;
  }

  bool at_clean_end() const noexcept { return flags.at_clean_end() && gaps.at_clean_end(); }
};

template <Sink kSink>
Fault read_pairs(const Head& head, const DecodeRules& rules, const ChunkStreams& streams,
                 DecodeTarget& part) noexcept {
  if (kSink == Sink::kPairs && head.pairs > part.capacity - part.pairs) return &faults::kNoRoom;
  DecodeTarget target = part;  // a copy that no store can alias
  const GapLengths lengths(head.key_bits, rules.flag_bits);
  CodeReader values(rules, head, target.scale, streams.values);
  GapReader gaps{streams.flags, streams.gaps, rules.flag_bits};
  std::uint64_t key = head.first_key;
  if (key < target.least_key) return &faults::kKey;
  for (std::uint32_t i = 0; i < head.pairs; ++i) {
    if (i > 0) {
      std::uint64_t gap = 0;
      const Fault fault = head.key_bits > 0 ? gaps.next(lengths, gap) : nullptr;
      if (fault != nullptr) return fault;
      key += gap + 1;
    }
    if (key >= target.dimension) return &faults::kKey;
    float value = 0;
    if (!values.next(value)) return &faults::kCode;
    put_pair<kSink>(key, value, target);
  }
  part.pairs = target.pairs;
  part.least_key = key + 1;
  if (!values.fill_range()) return &faults::kCodeRange;
  if (bit_width(gaps.all_gaps) != head.key_bits) return &faults::kKeyBits;
  return values.at_clean_end() && gaps.at_clean_end() ? nullptr : &faults::kPadding;
}

Fault decode_chunk(const ChunkBytes& chunk, const DecodeRules& rules, DecodeTarget& target) {
  Head head{};
  const Fault wrong_head = read_head(chunk, target.least_key == 0, target.is_last, head);
  if (wrong_head != nullptr) return wrong_head;
  if (head.pairs == 0) return nullptr;
  const ChunkStreams streams = streams_of(chunk, head, rules.flag_bits);
  if (streams.are_cut) return &faults::kTruncated;
  return for_sink(target.sink, [&]<Sink kSink>() { return read_pairs<kSink>(head, rules, streams, target); });
}

}  // namespace

Decoded decode_row(const ChunkRow& row, const DecodeRules& rules, DecodeTarget& target) {
  const bool ends_part = target.is_last;
  Decoded decoded{};
  for (; decoded.chunks < row.chunks; ++decoded.chunks) {
    target.is_last = ends_part && decoded.chunks + 1 == row.chunks;
    decoded.fault = decode_chunk(row.at[decoded.chunks], rules, target);
    if (decoded.fault != nullptr) break;
  }
  target.is_last = ends_part;
  return decoded;
}

namespace {

template <Sink kSink>
Fault place(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& part) noexcept {
  DecodeTarget target = part;  // a copy that no store can alias
  CodeReader values(rules, chunk.head, target.scale, chunk.values);
  for (std::uint32_t i = 0; i < chunk.head.pairs; ++i) {
    float value = 0;
    if (!values.next(value)) return &faults::kCode;
    put_pair<kSink>(chunk.keys[i], value, target);
  }
  part.pairs = target.pairs;
  if (!values.fill_range()) return &faults::kCodeRange;
  return values.at_clean_end() ? nullptr : &faults::kPadding;
}

}  // namespace

Fault place_values(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& target) {
  return for_sink(target.sink, [&]<Sink kSink>() { return place<kSink>(chunk, rules, target); });
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
