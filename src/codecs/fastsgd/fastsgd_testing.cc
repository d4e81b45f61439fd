#include "codecs/fastsgd/fastsgd_testing.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "codecs/bit_stream_testing.h"

namespace deltawire::testing {

namespace {

constexpr int kLargestCode = 2047;
constexpr std::size_t kChunk = 16384;

struct Pair {
  std::uint64_t key;
  int code;
  bool negative;
};

int bits_for(std::uint64_t number) {
  int bits = 0;
  while (number >> bits != 0) ++bits;
  return bits;
}

int length_of(int flag, int longest, int l) {
  return static_cast<int>(std::ceil((flag + 1) * longest / std::pow(2.0, l)));
}

class Reader {
 public:
  explicit Reader(const std::byte* at) : at_(at) {}
  std::uint64_t get(int bits) {
    std::uint64_t number = 0;
    for (int i = 0; i < bits; ++i, ++bit_) {
      number |= (std::to_integer<std::uint64_t>(at_[bit_ / 8]) >> (bit_ % 8) & 1) << i;
    }
    return number;
  }

 private:
  const std::byte* at_;
  std::size_t bit_ = 0;
};

void append_chunk(const std::vector<Pair>& pairs, int l, std::vector<std::byte>& bytes) {
  BitStream head;
  head.put(pairs.size(), 16);
  head.append_to(bytes);
  if (pairs.empty()) return;
  int base = kLargestCode;
  int highest = 0;
  std::uint64_t longest_gap = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    base = std::min(base, pairs[i].code);
    highest = std::max(highest, pairs[i].code);
    if (i > 0) longest_gap = std::max(longest_gap, pairs[i].key - pairs[i - 1].key - 1);
  }
  const int code_bits = bits_for(static_cast<std::uint64_t>(highest - base));
  const int key_bits = bits_for(longest_gap);
  BitStream rest;
  rest.put(static_cast<std::uint64_t>(base), 11);
  rest.put(static_cast<std::uint64_t>(code_bits), 5);
  rest.put(static_cast<std::uint64_t>(key_bits), 8);
  rest.put(pairs[0].key, 32);
  rest.append_to(bytes);
  BitStream values;
  BitStream flags;
  BitStream gaps;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    values.put(static_cast<std::uint64_t>(pairs[i].code - base), code_bits);
    values.put(pairs[i].negative ? 1 : 0, 1);
    if (i == 0 || key_bits == 0) continue;
    const std::uint64_t gap = pairs[i].key - pairs[i - 1].key - 1;
    int flag = 0;
    while (length_of(flag, key_bits, l) < bits_for(gap)) ++flag;
    flags.put(static_cast<std::uint64_t>(flag), l);
    gaps.put(gap, length_of(flag, key_bits, l));
  }
  values.append_to(bytes);
  flags.append_to(bytes);
  gaps.append_to(bytes);
}

}  // namespace

float fastsgd_sum(const std::vector<float>& values) {
  double total = 0;
  for (std::size_t block = 0; block < values.size(); block += 65536) {
    const std::size_t end = std::min(values.size(), block + 65536);
    float largest = 0;
    for (std::size_t i = block; i < end; ++i) largest = std::max(largest, std::fabs(values[i]));
    if (largest == 0) continue;
    const int e = std::max(std::ilogb(largest), -126);
    double units = 0;
    for (std::size_t i = block; i < end; ++i) {
      units += std::floor(std::ldexp(std::fabs(static_cast<double>(values[i])), 29 - e));
    }
    total += std::ldexp(units, e - 29);
  }
  return static_cast<float>(total);
}

float FastsgdModel::value(float sum, int code) const {
  double power = 1;
  for (int i = 0; i < code; ++i) power *= static_cast<double>(b);
  return static_cast<float>(static_cast<double>(sum) / power);
}

int FastsgdModel::threshold(const std::vector<float>& values, float sum) const {
  int last = tau < 0 ? kLargestCode : tau;
  while (last > 0 && value(sum, last) == 0) --last;
  if (tau >= 0) return last;
  std::vector<float> sorted;
  sorted.reserve(values.size());
  for (const float x : values) sorted.push_back(std::fabs(x));
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const double wanted = std::ceil(static_cast<double>(keep) * static_cast<double>(values.size()));
  const float least = sorted[static_cast<std::size_t>(wanted) - 1];
  for (int code = 0; code < last; ++code) {
    if (value(sum, code) <= least) return code;
  }
  return last;
}

Encoded FastsgdModel::encode(const std::vector<float>& values) const {
  Encoded part;
  if (values.empty()) return part;
  const float sum = fastsgd_sum(values);
  part.scalar = bits_of(sum);
  std::vector<float> table;
  if (sum > 0) {
    for (int code = 0, last = threshold(values, sum); code <= last; ++code) {
      table.push_back(value(sum, code));
    }
  }
  std::vector<Pair> pairs;
  const auto close = [&] {
    append_chunk(pairs, l, part.payload);
    part.chunk_ends.push_back(static_cast<std::uint32_t>(part.payload.size()));
    pairs.clear();
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float x = std::fabs(values[i]);
    const auto code = std::find_if(table.begin(), table.end(), [x](float v) { return v <= x; });
    if (code == table.end()) continue;
    if (pairs.size() == kChunk) close();
    pairs.push_back({i, static_cast<int>(code - table.begin()), values[i] < 0});
  }
  close();
  return part;
}

std::vector<float> FastsgdModel::decode(const Encoded& part, std::uint64_t count) const {
  std::vector<float> values(count);
  std::size_t begin = 0;
  for (const std::uint32_t end : part.chunk_ends) {
    const std::byte* at = part.payload.data() + begin;
    begin = end;
    Reader head(at);
    const std::uint64_t pairs = head.get(16);
    if (pairs == 0) continue;
    const auto base = static_cast<int>(head.get(11));
    const auto code_bits = static_cast<int>(head.get(5));
    const auto key_bits = static_cast<int>(head.get(8));
    std::uint64_t key = head.get(32);
    Reader codes(at + 9);
    const std::byte* const rest = at + 9 + (pairs * static_cast<std::uint64_t>(code_bits + 1) + 7) / 8;
    Reader flags(rest);
    Reader gaps(rest + ((pairs - 1) * static_cast<std::uint64_t>(l) + 7) / 8);
    for (std::uint64_t i = 0; i < pairs; ++i) {
      if (i > 0 && key_bits == 0) key += 1;
      if (i > 0 && key_bits > 0) {
        const auto flag = static_cast<int>(flags.get(l));
        key += 1 + gaps.get(length_of(flag, key_bits, l));
      }
      const float magnitude =
          value(std::bit_cast<float>(part.scalar), base + static_cast<int>(codes.get(code_bits)));
      values[key] = codes.get(1) != 0 ? -magnitude : magnitude;
    }
  }
  return values;
}

}  // namespace deltawire::testing
