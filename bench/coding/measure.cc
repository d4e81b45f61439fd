#include "coding/measure.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace deltawire::bench {

namespace {

constexpr std::size_t kStreamed = (std::size_t{16} << 20) / sizeof(float);
constexpr double kShortest = 100e-6;  // seconds: below, the clock's own time would count

double now(Clock clock) {
  timespec time{};
  clock_gettime(clock == Clock::kThread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Seconds of one of `times` runs.
double seconds_of(Clock clock, int times, const auto& work) {
  const double begin = now(clock);
  for (int i = 0; i < times; ++i) work();
  return (now(clock) - begin) / times;
}

// How often work must be run for its time to be worth reading.
int times_for(Clock clock, const auto& work) {
  work();
  const double once = seconds_of(clock, 3, work);
  return std::clamp(static_cast<int>(kShortest / std::max(once, 1e-9)), 1, 10000);
}

double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

}  // namespace

void streaming_copy(const float* from, float* to, std::size_t count) noexcept {
#if defined(__x86_64__)
  if (count >= kStreamed) {
    std::size_t i = 0;
    for (; i < count && reinterpret_cast<std::uintptr_t>(to + i) % 16 != 0; ++i) to[i] = from[i];
    for (; i + 16 <= count; i += 16) {
      for (std::size_t k = 0; k < 16; k += 4) _mm_stream_ps(to + i + k, _mm_loadu_ps(from + i + k));
    }
    _mm_sfence();
    std::memcpy(to + i, from + i, (count - i) * sizeof(float));
    return;
  }
#endif
  std::memcpy(to, from, count * sizeof(float));
}

void measure(benchmark::State& state, const Work& work) {
  std::vector<float> from(work.count, 1.0F);
  std::vector<float> to(work.count);
  const auto copy = [&] {
    streaming_copy(from.data(), to.data(), work.count);
    benchmark::ClobberMemory();
  };
  const int copies = times_for(work.clock, copy);
  if (work.restore) work.restore();
  // What must be restored before each run is run once: by then it takes long enough.
  const int runs = work.restore ? 1 : times_for(work.clock, work.run);
  std::vector<double> ratios;
  std::vector<double> rates;
  const double bytes = static_cast<double>(work.count) * sizeof(float);
  for (auto unused : state) {
    (void)unused;
    const double copied = seconds_of(work.clock, copies, copy);
    if (work.restore) work.restore();
    const double worked = seconds_of(work.clock, runs, work.run);
    ratios.push_back(copied / worked);
    rates.push_back(bytes / worked / 1e9);
    state.SetIterationTime(worked);
  }
  state.counters["xC"] = median(ratios);
  state.counters["GB/s"] = median(rates);
  state.counters["ns"] = sizeof(float) / median(rates);
  if (work.payload_bytes > 0) {
    state.counters["bits"] = 8.0 * static_cast<double>(work.payload_bytes) / static_cast<double>(work.count);
  }
}

double copy_rate(std::size_t count) {
  std::vector<float> from(count, 1.0F);
  std::vector<float> to(count);
  const auto copy = [&] {
    streaming_copy(from.data(), to.data(), count);
    benchmark::ClobberMemory();
  };
  const int times = times_for(Clock::kThread, copy);
  std::vector<double> seconds;
  for (int i = 0; i < 9; ++i) seconds.push_back(seconds_of(Clock::kThread, times, copy));
  return static_cast<double>(count) * sizeof(float) / median(seconds) / 1e9;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  std::string name = "unknown";
  std::string model;
  while (std::getline(file, line) && !line.empty()) {
    const std::string value = line.substr(std::min(line.size(), line.find(':') + 2));
    if (line.starts_with("model name")) name = value;
    if (line.starts_with("cpu family")) model += ", family " + value;
    if (line.starts_with("model\t")) model += ", model " + value;
  }
  return name + model;
}

}  // namespace deltawire::bench
