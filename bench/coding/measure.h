// How speeds are measured: each piece of work in turn with a copy of the same array, so that both meet the
// same machine, and the median of the ratios.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <benchmark/benchmark.h>

namespace deltawire::bench {

// Whose time counts: this thread's alone, or the clock on the wall, for work of several threads.
enum class Clock : std::uint8_t { kThread, kWall };

// Copies as fast as one thread can: from 16 MiB on past the caches, which saves reading what is replaced.
void streaming_copy(const float* from, float* to, std::size_t count) noexcept;

// Runs `work` on `count` float32 as often as `state` asks for, each time next to a copy of as many, and
// reports
//   xC      speed as a ratio to the copy's: the median
//   GB/s    bytes of float32 a second: the median
//   ns      each value takes: the median
//   bits    that each value takes (`payload_bytes`; 0: not reported)
// `restore` is called before each run, and its time doesn't count.
struct Work {
  std::size_t count = 0;
  std::uint64_t payload_bytes = 0;
  Clock clock = Clock::kThread;
  std::function<void()> run = {};
  std::function<void()> restore = {};  // may be empty
};
void measure(benchmark::State& state, const Work& work);

// This machine's copy, GB/s of float32 at `count` values: what xC = 1 means.
double copy_rate(std::size_t count);

std::string cpu_name();

}  // namespace deltawire::bench
