#include "codecs/baselines/sketchml/sketchml_testing.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "codecs/bit_stream_testing.h"

namespace deltawire::testing {

namespace {

constexpr std::size_t kChunk = 65536;
constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

void append(std::vector<std::byte>& bytes, std::uint64_t number, int size) {
  for (int i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(number >> (8 * i) & 255));
}

struct Sign {
  std::vector<float> lower;
  std::vector<float> mean;

  Sign(std::vector<float> magnitudes, std::size_t most) {
    if (magnitudes.empty()) return;
    std::sort(magnitudes.begin(), magnitudes.end());
    const std::size_t wanted = std::min(most, magnitudes.size());
    for (std::size_t i = 0; i < wanted; ++i) lower.push_back(magnitudes[i * magnitudes.size() / wanted]);
    lower.erase(std::unique(lower.begin(), lower.end()), lower.end());
    for (std::size_t i = 0; i < lower.size(); ++i) {
      const float upper = i + 1 < lower.size() ? lower[i + 1] : magnitudes.back();
      mean.push_back(static_cast<float>((static_cast<double>(lower[i]) + static_cast<double>(upper)) / 2));
    }
  }

  int bucket(float magnitude) const {
    return static_cast<int>(std::upper_bound(lower.begin(), lower.end(), magnitude) - lower.begin()) - 1;
  }
};

int bytes_for(std::uint32_t gap) {
  return gap < 0x100 ? 1 : gap < 0x10000 ? 2 : gap < 0x1000000 ? 3 : 4;
}

int bits_for(int largest) {
  int bits = 0;
  while (largest >> bits != 0) ++bits;
  return bits;
}

// One chunk on its way.
struct Chunk {
  const SketchmlModel& model;
  std::uint32_t seed;
  SketchmlModel::Result& result;
  const std::vector<float>& values;
  std::vector<std::uint32_t> keys;

  void write() {
    std::vector<std::byte>& bytes = result.part.payload;
    append(bytes, keys.size(), 4);
    if (keys.empty()) return;
    append(bytes, keys[0], 4);
    const Sign signs[2] = {sign_of(false), sign_of(true)};
    for (const Sign& sign : signs) append(bytes, sign.mean.size(), 2);
    for (const Sign& sign : signs) {
      for (const float mean : sign.mean) append(bytes, std::bit_cast<std::uint32_t>(mean), 4);
    }
    for (const bool negative : {false, true}) {
      const Sign& sign = signs[negative ? 1 : 0];
      const auto buckets = static_cast<int>(sign.mean.size());
      const int groups = std::min(model.r / 2, buckets);
      for (int group = 0; group < groups; ++group) write_group(sign, negative, group, groups);
    }
  }

  Sign sign_of(bool negative) const {
    std::vector<float> magnitudes;
    for (const std::uint32_t key : keys) {
      if (std::signbit(values[key]) == negative) magnitudes.push_back(std::fabs(values[key]));
    }
    return {magnitudes, static_cast<std::size_t>(model.q / 2)};
  }

  void write_group(const Sign& sign, bool negative, int group, int groups) {
    const auto buckets = static_cast<int>(sign.mean.size());
    std::vector<std::uint32_t> chosen;
    int begin = buckets;
    int width = 0;
    for (int i = 0; i < buckets; ++i) {
      if (i * groups / buckets != group) continue;
      begin = std::min(begin, i);
      ++width;
    }
    for (const std::uint32_t key : keys) {
      if (std::signbit(values[key]) != negative) continue;
      const int bucket = sign.bucket(std::fabs(values[key]));
      if (bucket >= begin && bucket < begin + width) chosen.push_back(key);
    }
    std::vector<std::byte>& bytes = result.part.payload;
    append(bytes, chosen.size(), 4);
    BitStream flags;
    std::vector<std::byte> gaps;
    std::uint32_t least = keys[0];
    for (const std::uint32_t key : chosen) {
      flags.put(static_cast<std::uint64_t>(bytes_for(key - least) - 1), 2);
      append(gaps, key - least, bytes_for(key - least));
      least = key + 1;
    }
    flags.append_to(bytes);
    bytes.insert(bytes.end(), gaps.begin(), gaps.end());
    write_table(sign, negative, chosen, begin, width);
  }

  void write_table(const Sign& sign, bool negative, const std::vector<std::uint32_t>& chosen, int begin,
                   int width) {
    const auto columns = static_cast<std::uint32_t>(
        std::ceil(static_cast<double>(model.cols) * static_cast<double>(chosen.size())));
    std::vector<std::vector<int>> table(static_cast<std::size_t>(model.rows),
                                        std::vector<int>(columns, width - 1));
    for (const std::uint32_t key : chosen) {
      for (int row = 0; row < model.rows; ++row) {
        int& cell = table[static_cast<std::size_t>(row)][sketchml_column(seed, key, row, columns)];
        cell = std::min(cell, sign.bucket(std::fabs(values[key])) - begin);
      }
    }
    BitStream cells;
    for (const auto& row : table) {
      for (const int cell : row) cells.put(static_cast<std::uint64_t>(cell), bits_for(width - 1));
    }
    cells.append_to(result.part.payload);
    for (const std::uint32_t key : chosen) {
      int found = 0;
      for (int row = 0; row < model.rows; ++row) {
        found =
            std::max(found, table[static_cast<std::size_t>(row)][sketchml_column(seed, key, row, columns)]);
      }
      const auto mean = [&](int bucket) {
        const float magnitude = sign.mean[static_cast<std::size_t>(bucket)];
        return negative ? -magnitude : magnitude;
      };
      result.decoded[key] = mean(begin + found);
      result.of_bucket[key] = mean(sign.bucket(std::fabs(values[key])));
      result.least[key] = mean(begin);
    }
  }
};

}  // namespace

std::uint32_t sketchml_column(std::uint32_t seed, std::uint32_t key, int row, std::uint32_t columns) {
  const std::uint64_t number = std::uint64_t{key} * 4 + static_cast<std::uint64_t>(row);
  const std::uint64_t drawn = mix(mix(seed + kGolden) + kGolden * (number + 1)) >> 32;
  return static_cast<std::uint32_t>(drawn * columns >> 32);
}

SketchmlModel::Result SketchmlModel::encode(const std::vector<float>& values, std::uint32_t seed) const {
  Result result;
  result.part.scalar = seed;
  for (auto* each : {&result.decoded, &result.of_bucket, &result.least}) each->assign(values.size(), 0.0F);
  Chunk chunk{*this, seed, result, values, {}};
  const auto close = [&] {
    chunk.write();
    result.part.chunk_ends.push_back(static_cast<std::uint32_t>(result.part.payload.size()));
    chunk.keys.clear();
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0) continue;
    if (chunk.keys.size() == kChunk) close();
    chunk.keys.push_back(static_cast<std::uint32_t>(i));
  }
  close();
  return result;
}

}  // namespace deltawire::testing
