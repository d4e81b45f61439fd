// Sizes and speed of gcomp on normal values, and on recorded values if files are given:
//
//   gcomp_bench [COUNT [GRADIENT SIGNIFICANCE]]     raw little-endian float32 files
//
// Every round trip is verified before it is timed. Speed is the ratio to memcpy of the same array, both
// alternating in one loop, in processor time; the median of the ratios stands in the table. Below it, what
// several threads are worth, by the clock on the wall (nothing else should run).
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <numbers>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "deltawire/codec.h"

namespace deltawire {
namespace {

constexpr int kRounds = 9;

// Processor time of this thread: on a busy machine the clock on the wall would count the others' work too.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double seconds_of(const auto& work) {
  const double begin = now();
  work();
  return now() - begin;
}

std::vector<float> normal_values(std::size_t count, double spread, std::uint64_t seed) {
  CounterRng random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const double radius = std::sqrt(-2 * std::log(1 - random.next_uniform()));
    value = static_cast<float>(spread * radius * std::cos(2 * std::numbers::pi * random.next_uniform()));
  }
  return values;
}

std::vector<float> file_values(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

struct Input {
  std::string name;
  std::vector<float> values;
  std::vector<float> significance;  // may be empty
};

// Whether `back` is `x` with at least 2 bits of its mantissa, rounded or cut, or +0 for what is no normal
// number; which bits exactly is the tests' affair.
bool near_lossless(float x, float back) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return bits == std::bit_cast<std::uint32_t>(back) || std::fabs(x - back) <= 0x1p-3F * std::fabs(x) ||
         ((bits & 0x7F800000U) == 0 && std::bit_cast<std::uint32_t>(back) == 0);
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

void measure(const Input& input, const char* spec) {
  const auto codec = make_codec(spec);
  if (!codec) std::abort();
  const std::size_t count = input.values.size();
  TensorView part{input.values.data(), count, DType::kF32};
  part.significance = input.significance.empty() ? nullptr : input.significance.data();
  const Sizes sizes = (*codec)->sizes(part);
  std::vector<std::byte> payload(sizes.payload_bytes);
  std::vector<std::byte> scratch(sizes.scratch_bytes);
  std::vector<std::uint32_t> ends(sizes.chunks);
  std::vector<float> back(count);
  const auto encoded = (*codec)->encode(part, {}, {payload, ends}, {.scratch = scratch});
  if (!encoded) std::abort();
  const PartView view{{payload.data(), encoded->payload_bytes}, {ends.data(), encoded->chunks}, 0};
  const TensorSlot slot{back.data(), count, DType::kF32};
  if (!(*codec)->decode(view, slot, Into::kOverwrite, 1)) std::abort();
  for (std::size_t i = 0; i < count; ++i) {
    if (near_lossless(input.values[i], back[i])) continue;
    std::printf("%s: element %zu came back as %g, was %g\n", spec, i, back[i], input.values[i]);
    std::exit(1);
  }

  std::vector<double> encode;
  std::vector<double> decode;
  std::vector<double> accumulate;
  std::vector<double> copy;
  for (int round = 0; round < kRounds; ++round) {
    const double memcpy_s = seconds_of([&] { std::memcpy(back.data(), part.values, count * sizeof(float)); });
    copy.push_back(memcpy_s);
    encode.push_back(
        seconds_of([&] { (void)(*codec)->encode(part, {}, {payload, ends}, {.scratch = scratch}); }));
    decode.push_back(seconds_of([&] { (void)(*codec)->decode(view, slot, Into::kOverwrite, 1); }));
    accumulate.push_back(seconds_of([&] { (void)(*codec)->decode(view, slot, Into::kAccumulate, 0.5F); }));
  }
  const double bytes = static_cast<double>(count) * sizeof(float);
  const auto ratio = [&](std::vector<double> times) {
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = copy[i] / times[i];
    return median(times);
  };
  std::printf(
      "%-12s %-20s %7.3f bit  %5.1f %%  encode %5.2f GB/s (%.3f)  decode %5.2f (%.3f)  add %5.2f (%.3f)\n",
      input.name.c_str(), spec,
      8.0 * static_cast<double>(encoded->payload_bytes) / static_cast<double>(count),
      100.0 * static_cast<double>(encoded->payload_bytes) / bytes, bytes / median(encode) / 1e9,
      ratio(encode), bytes / median(decode) / 1e9, ratio(decode), bytes / median(accumulate) / 1e9,
      ratio(accumulate));
}

double wall_seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// One thread and `threads`, in turn; the bytes of both are compared.
void measure_threads(const std::vector<float>& values, int threads) {
  const auto codec = make_codec("gcomp");
  if (!codec) std::abort();
  const TensorView part{values.data(), values.size(), DType::kF32};
  const Sizes sizes = (*codec)->sizes(part);
  std::vector<std::byte> payload(sizes.payload_bytes);
  std::vector<std::byte> scratch(sizes.scratch_bytes);
  std::vector<std::uint32_t> ends(sizes.chunks);
  std::vector<float> back(values.size());
  Workers workers(threads);
  std::vector<std::byte> first;
  std::vector<double> encode;
  std::vector<double> decode;
  for (int round = 0; round <= kRounds; ++round) {
    double encode_s[2];
    double decode_s[2];
    for (const int several : {0, 1}) {
      const Exec exec{.scratch = scratch, .workers = several == 1 ? &workers : nullptr};
      EncodedPart part_s;
      encode_s[several] =
          wall_seconds_of([&] { part_s = (*codec)->encode(part, {}, {payload, ends}, exec).value(); });
      const PartView view{{payload.data(), part_s.payload_bytes}, {ends.data(), part_s.chunks}, 0};
      decode_s[several] = wall_seconds_of([&] {
        (void)(*codec)->decode(view, {back.data(), back.size(), DType::kF32}, Into::kOverwrite, 1, exec);
      });
      if (several == 0) first = payload;
    }
    if (payload != first) std::abort();
    if (round == 0) continue;  // it made the memory
    encode.push_back(encode_s[0] / encode_s[1]);
    decode.push_back(decode_s[0] / decode_s[1]);
  }
  std::printf("%zu values, %d threads against one: encode %.2fx, decode %.2fx\n", values.size(), threads,
              median(encode), median(decode));
}

int run(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 25'000'000;
  Input normal{"normal", normal_values(count, 1e-3, 1), {}};
  for (const char* spec : {"gcomp", "gcomp:cut=6", "gcomp:cut=12", "gcomp:cut=18", "gcomp:lossless=on"}) {
    measure(normal, spec);
  }
  for (const double rate : {0.01, 0.1}) {  // SGD: the significance is weight / learning rate
    normal.name = "weights/" + std::to_string(rate).substr(0, 4);
    normal.significance = normal_values(count, 0.05 / rate, 2);
    measure(normal, "gcomp");
  }
  Input half{"half zeros", normal.values, {}};
  CounterRng random(3);
  for (float& value : half.values) value = random.next() % 2 == 0 ? 0.0F : value;
  measure(half, "gcomp");
  if (argc > 3) measure({"files", file_values(argv[2]), file_values(argv[3])}, "gcomp");
  if (argc > 2) measure({"files", file_values(argv[2]), {}}, "gcomp");
  const unsigned cores = std::thread::hardware_concurrency();
  for (int threads = 2; threads <= static_cast<int>(cores); threads *= 2) {
    measure_threads(normal.values, threads);
    measure_threads(normal_values(1'000'000, 1e-3, 1), threads);
  }
  return 0;
}

}  // namespace
}  // namespace deltawire

int main(int argc, char** argv) {
  return deltawire::run(argc, argv);
}
