// How vector kernels give keys their values: in tiles, without a check for each. What is odd is seen when all
// are done, and left to the reference, which finds what is wrong.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/kernels/prefetch.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

template <Sink kSink>
void put_tile(const std::uint32_t* keys, const float* values, std::uint32_t count,
              DecodeTarget& target) noexcept {
  if constexpr (kSink == Sink::kDense) {
    for (std::uint32_t i = 0; i < count; ++i) target.values[keys[i]] = values[i];
  }
  if constexpr (kSink == Sink::kDenseAdd) {
    for (std::uint32_t i = 0; i < count; ++i) target.values[keys[i]] += values[i];
  }
  if constexpr (kSink == Sink::kPairs) {
    std::memcpy(target.keys + target.pairs, keys, count * sizeof *keys);
    std::memcpy(target.values + target.pairs, values, count * sizeof *values);
  }
  target.pairs += count;
}

template <Sink kSink>
bool place_tiles(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& target) noexcept {
  ValueTables tables;
  ValueStream values{};
  values.stream = chunk.values;
  values.tables = &tables;
  open_values(values, rules, chunk.head, target.scale);
  float tile[kTile];
  for (std::uint32_t first = 0; first < chunk.head.pairs; first += kTile) {
    const std::uint32_t left = chunk.head.pairs - first;
    const std::uint32_t count = left < kTile ? left : kTile;
    if constexpr (kSink == Sink::kDense || kSink == Sink::kDenseAdd) {
      for (std::uint32_t i = 0; i < count; ++i) prefetch_far(target.values + chunk.keys[first + i]);
    }
    read_values(values, count, tile);
    put_tile<kSink>(chunk.keys + first, tile, count, target);
  }
  return values.lowest == 0 && values.highest < values.allowed &&
         bit_width(values.highest) == chunk.head.code_bits && values.stream.at_clean_end();
}

bool place_tiles_for(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& target) noexcept {
  switch (target.sink) {
    case Sink::kDense: return place_tiles<Sink::kDense>(chunk, rules, target);
    case Sink::kDenseAdd: return place_tiles<Sink::kDenseAdd>(chunk, rules, target);
    case Sink::kPairs: return place_tiles<Sink::kPairs>(chunk, rules, target);
    default: return place_tiles<Sink::kNothing>(chunk, rules, target);
  }
}

Fault place_in_tiles(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& target) {
  const DecodeTarget before = target;
  if (place_tiles_for(chunk, rules, target)) return Fault::kNone;
  target = before;
  return kernels_for(TargetId::kReference).place_values(chunk, rules, target);
}

}  // namespace

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
