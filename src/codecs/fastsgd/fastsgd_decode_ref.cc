// Reference kernel: decoding a chunk of hostile bytes. Writing is in fastsgd_write_ref.cc.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_codes_ops.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

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
    if (gaps.exhausted()) return Fault::kTruncated;
    if (gap < lengths.least[flag]) return Fault::kFlag;
    all_gaps |= static_cast<std::uint32_t>(gap);
    return Fault::kNone;
  }

  bool at_clean_end() const noexcept { return flags.at_clean_end() && gaps.at_clean_end(); }
};

template <Sink kSink>
Fault read_pairs(const Head& head, const DecodeRules& rules, const ChunkStreams& streams,
                 DecodeTarget& part) noexcept {
  if (kSink == Sink::kPairs && head.pairs > part.capacity - part.pairs) return Fault::kNoRoom;
  DecodeTarget target = part;  // a copy that no store can alias
  const GapLengths lengths(head.key_bits, rules.flag_bits);
  CodeReader values(rules, head, target.scale, streams.values);
  GapReader gaps{streams.flags, streams.gaps, rules.flag_bits};
  std::uint64_t key = head.first_key;
  if (key < target.least_key) return Fault::kKey;
  for (std::uint32_t i = 0; i < head.pairs; ++i) {
    if (i > 0) {
      std::uint64_t gap = 0;
      const Fault fault = head.key_bits > 0 ? gaps.next(lengths, gap) : Fault::kNone;
      if (fault != Fault::kNone) return fault;
      key += gap + 1;
    }
    if (key >= target.dimension) return Fault::kKey;
    float value = 0;
    if (!values.next(value)) return Fault::kCode;
    put_pair<kSink>(key, value, target);
  }
  part.pairs = target.pairs;
  part.least_key = key + 1;
  if (!values.fill_range()) return Fault::kCodeRange;
  if (bit_width(gaps.all_gaps) != head.key_bits) return Fault::kKeyBits;
  return values.at_clean_end() && gaps.at_clean_end() ? Fault::kNone : Fault::kPadding;
}

Fault decode_chunk(const ChunkBytes& chunk, const DecodeRules& rules, DecodeTarget& target) {
  Head head{};
  const Fault wrong_head = read_head(chunk, target.least_key == 0, target.is_last, head);
  if (wrong_head != Fault::kNone) return wrong_head;
  if (head.pairs == 0) return Fault::kNone;
  const ChunkStreams streams = streams_of(chunk, head, rules.flag_bits);
  if (streams.are_cut) return Fault::kTruncated;
  switch (target.sink) {
    case Sink::kDense: return read_pairs<Sink::kDense>(head, rules, streams, target);
    case Sink::kDenseAdd: return read_pairs<Sink::kDenseAdd>(head, rules, streams, target);
    case Sink::kPairs: return read_pairs<Sink::kPairs>(head, rules, streams, target);
    default: return read_pairs<Sink::kNothing>(head, rules, streams, target);
  }
}

}  // namespace

Decoded decode_row(const ChunkRow& row, const DecodeRules& rules, DecodeTarget& target) {
  const bool ends_part = target.is_last;
  Decoded decoded{};
  for (; decoded.chunks < row.chunks; ++decoded.chunks) {
    target.is_last = ends_part && decoded.chunks + 1 == row.chunks;
    decoded.fault = decode_chunk(row.at[decoded.chunks], rules, target);
    if (decoded.fault != Fault::kNone) break;
  }
  target.is_last = ends_part;
  return decoded;
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
