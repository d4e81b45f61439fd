// What overlapping coding with sending is worth in the ring: the same all-reduce with pieces coded as they
// come, and with each hop coded only when all of it has come. Ranks are threads of this process, links are
// shaped.
//
//   build/release/bench/ring_pipeline [MBIT] [ELEMENTS] [RANKS]      default: 100 4194304 4
//
// The means of both are compared bit for bit before a time is printed. Times are medians of rank 0's.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "deltawire/connect.h"
#include "deltawire/reducer.h"

namespace deltawire {
namespace {

constexpr int kRepeats = 3;

struct Setting {
  double megabits = 100;
  std::uint64_t element_count = std::uint64_t{1} << 22;
  int ranks = 4;
};

struct Outcome {
  double seconds = 0;
  double coding_seconds = 0;
  std::uint64_t bytes_sent = 0;
  std::vector<float> mean;
};

// Values about as large as gradients, of a few scales.
std::vector<float> gradient(int rank, std::uint64_t element_count) {
  CounterRng random(static_cast<std::uint64_t>(rank));
  std::vector<float> values(element_count);
  for (float& value : values) {
    const double sum = random.next_uniform() + random.next_uniform() + random.next_uniform() - 1.5;
    value = static_cast<float>(1e-3 * sum * sum * sum);
  }
  return values;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

[[noreturn]] void stop(const Error& error) {
  std::fprintf(stderr, "ring_pipeline: %s\n", error.message.c_str());
  std::exit(1);
}

void run_rank(Reducer& reducer, Transport& transport, const Setting& setting, Outcome& outcome) {
  std::vector<double> seconds;
  std::vector<double> coding;
  for (std::uint64_t step = 0; step < kRepeats; ++step) {
    std::vector<float> values = gradient(transport.rank(), setting.element_count);
    const Named tensor{"w", {values.data(), values.size(), DType::kF32}, 0};
    const Deadline start = Clock::now();
    const auto report = reducer.all_reduce(std::span(&tensor, 1), {step, 0, true}, transport,
                                           start + std::chrono::minutes(5));
    if (!report) stop(report.error());
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    coding.push_back(report->encode_seconds + report->decode_seconds);
    outcome.bytes_sent = report->bytes_sent;
    outcome.mean = std::move(values);
  }
  outcome.seconds = median(seconds);
  outcome.coding_seconds = median(coding);
}

Outcome measure(const std::string& spec, bool pipeline, const Setting& setting) {
  LinkOptions link;
  link.shape = LinkShape{setting.megabits * 1e6 / 8, 16384};
  const auto count = static_cast<std::size_t>(setting.ranks);
  auto mesh = connect_inproc(setting.ranks, std::vector<LinkOptions>(count, link));
  if (!mesh) stop(mesh.error());
  ReducerOptions options;
  options.pipeline = pipeline;
  std::vector<std::unique_ptr<Reducer>> reducers;
  for (std::size_t rank = 0; rank < count; ++rank) {
    auto reducer = make_reducer(spec, options);
    if (!reducer) stop(reducer.error());
    reducers.push_back(std::move(*reducer));
  }
  std::vector<Outcome> outcomes(count);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] { run_rank(*reducers[rank], *(*mesh)[rank], setting, outcomes[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  return std::move(outcomes[0]);
}

int run(const Setting& setting) {
  std::printf("%d ranks, %llu elements, %g Mbit/s a rank and direction; seconds of one all-reduce\n\n",
              setting.ranks, static_cast<unsigned long long>(setting.element_count), setting.megabits);
  std::printf("%-20s %9s %9s %7s %8s %9s\n", "spec", "in turn", "pipeline", "gain", "coding", "MB sent");
  for (const char* spec : {"ring(fp32)", "ring(bf16)", "ring(gcomp:cut=6)", "ring(3lc)"}) {
    const Outcome in_turn = measure(spec, false, setting);
    const Outcome pipelined = measure(spec, true, setting);
    if (in_turn.mean != pipelined.mean) {
      std::fprintf(stderr, "ring_pipeline: %s: the means differ\n", spec);
      return 1;
    }
    std::printf("%-20s %9.3f %9.3f %6.2fx %8.3f %9.2f\n", spec, in_turn.seconds, pipelined.seconds,
                in_turn.seconds / pipelined.seconds, pipelined.coding_seconds,
                static_cast<double>(pipelined.bytes_sent) / 1e6);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace deltawire

int main(int argc, char** argv) {
  deltawire::Setting setting;
  if (argc > 1) setting.megabits = std::atof(argv[1]);
  if (argc > 2) setting.element_count = static_cast<std::uint64_t>(std::atoll(argv[2]));
  if (argc > 3) setting.ranks = std::atoi(argv[3]);
  if (argc > 4 || setting.megabits <= 0 || setting.element_count == 0 || setting.ranks < 1) {
    std::fprintf(stderr, "usage: ring_pipeline [MBIT] [ELEMENTS] [RANKS]\n");
    return 2;
  }
  return deltawire::run(setting);
}
