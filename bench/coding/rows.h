// What the program measures: rows, each a name of parts between slashes, and their work.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "coding/inputs.h"

namespace deltawire::bench {

struct Size {
  const char* name;
  std::size_t count;
};
inline constexpr Size kSizes[] = {
    {"4K", 4096}, {"64K", 65536}, {"1M", std::size_t{1} << 20}, {"25M", 25000000}};

// An input of that size; the one that was made last is kept.
const Input& input_of(const std::string& name, std::size_t count);

// What is put before input is encoded, and the inputs to measure it with.
struct CodecCase {
  std::string spec;
  std::vector<std::string> inputs;
};

// <way>/<spec>/<input>/<size>/<target>, way: encode (the new residual apart), inplace, decode, accumulate;
// and of codecs with a key-value form encode_pairs, decode_pairs. An input may be a tensor of 16 bits, as
// "normal.bf16"; GB/s and xC are those of as many float32. Checksums of the chunks included. Before a
// row is measured, bytes and values are compared with the reference's; where they differ, the row is an
// error.
void register_codecs(const std::vector<CodecCase>& cases);

// channel/<spec>/normal/<size>/threads:<n>, and channel_decode/...: a message of 1 M values in parts of this
// size, through a Channel. Size `small`: 3,000 tensors of 3 to 300 values; `of_small`: one of as many.
void register_channels(const std::vector<CodecCase>& cases);

// select/nth_element-twice/laplace/<size>: what selecting the largest of each sign costs without this
// library.
void register_selection();

// Registers a row. Few iterations: of each the median counts, not the mean.
template <class Row>
void add_row(const std::string& name, std::size_t count, Row row) {
  benchmark::RegisterBenchmark(name.c_str(), row)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->Iterations(count > (std::size_t{4} << 20) ? 11 : 31);
}

}  // namespace deltawire::bench
