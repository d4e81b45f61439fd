// How long an exchange takes, and how long its bytes alone would: the ranks are threads of this process, each
// behind a line of a given rate. The bound is the bytes that a rank sends, by the rate of its line.
//
// Values are normally distributed; their significance is that of weights of 0.05 to SGD at a rate of 0.1.
// "CPU" is the processor time of the program by ranks: of the rank's thread, and of all that its transport
// takes.
//
// usage: rounds [--only=PART OF A ROW'S GRADIENTS] [SPEC...]     direct(fp32) and ring(fp32), if not told
// otherwise
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "deltawire/connect.h"
#include "deltawire/reducer.h"

namespace deltawire {
namespace {

constexpr int kRanks = 4;
constexpr std::uint64_t kWarmUp = 2;  // steps

struct Workload {
  const char* name;
  std::vector<std::pair<const char*, std::size_t>> tensors;
  std::size_t buckets;
  double bits_per_second;
  std::uint64_t steps;
};

const std::vector<std::pair<const char*, std::size_t>> kLeNet5{
    {"conv1.weight", 500},  {"conv1.bias", 20}, {"conv2.weight", 25000}, {"conv2.bias", 50},
    {"fc1.weight", 400000}, {"fc1.bias", 500},  {"fc2.weight", 5000},    {"fc2.bias", 10}};
const std::vector<std::pair<const char*, std::size_t>> kLayers{
    {"block1.fc1.weight", 2359296}, {"block1.fc1.bias", 3072},       {"block1.fc2.weight", 2359296},
    {"block1.fc2.bias", 768},       {"block2.query.weight", 589824}, {"block2.key.weight", 589824},
    {"block2.value.weight", 589824}};
const std::vector<std::pair<const char*, std::size_t>> kOne{{"embedding.weight", 6500000}};

const Workload kWorkloads[] = {
    {"LeNet5", kLeNet5, 1, 100e6, 12},
    {"26 MB in 7 tensors", kLayers, 1, 1e9, 8},
    {"26 MB in 1 tensor", kOne, 1, 1e9, 8},
    {"26 MB in 7, 100 Mbit", kLayers, 1, 1e8, 4},
    {"LeNet5, 10 Mbit", kLeNet5, 1, 1e7, 6},
    {"26 MB in 7, 20 Mbit", kLayers, 1, 2e7, 4},
    {"26 MB in 7, 10 Gbit", kLayers, 1, 1e10, 30},
    {"26 MB in 1, 20 Mbit", kOne, 1, 2e7, 4},
    {"LeNet5, no line", kLeNet5, 1, 0, 60},
    {"26 MB in 7, no line", kLayers, 1, 0, 12},
};

[[noreturn]] void give_up(const std::string& message) {
  std::fprintf(stderr, "rounds: %s\n", message.c_str());
  std::exit(1);
}

struct Taken {
  double seconds = 0;
  std::uint64_t bytes_sent = 0;
};

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// `count` numbers of that standard deviation, the same for every run.
std::vector<float> normal(std::size_t count, float spread, std::uint32_t seed) {
  std::vector<float> numbers(count);
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0, spread);
  std::ranges::generate(numbers, [&] { return distribution(random); });
  return numbers;
}

struct Model {
  explicit Model(const Workload& workload) {
    for (const auto& [name, count] : workload.tensors) {
      const auto seed = static_cast<std::uint32_t>(count);
      values.push_back(normal(count, 1e-3F, seed));
      significances.push_back(normal(count, 0.05F / 0.1F, seed + 1));
      TensorSlot slot{values.back().data(), count, DType::kF32};
      slot.significance = significances.back().data();
      tensors.push_back({name, slot});
    }
  }
  std::vector<std::vector<float>> values;
  std::vector<std::vector<float>> significances;
  std::vector<Named> tensors;
};

struct Rank {
  Taken median;
  Memory memory;
  double processor_seconds = 0;  // of the whole program in a step, by its ranks
};

Rank run_rank(const std::string& spec, const Workload& workload, Transport& transport, std::barrier<>& all) {
  auto reducer = make_reducer(spec);
  if (!reducer) give_up(reducer.error().message);
  Model model(workload);
  std::vector<Taken> taken;
  double cpu = 0;
  for (std::uint64_t step = 0; step < workload.steps; ++step) {
    all.arrive_and_wait();
    if (step == kWarmUp) cpu = processor_seconds();
    const auto begin = Clock::now();
    const auto report = (*reducer)->all_reduce(model.tensors, {step, 0, true}, transport,
                                               Clock::now() + std::chrono::seconds(60));
    if (!report) give_up(report.error().message);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (step >= kWarmUp) taken.push_back({seconds, report->bytes_sent});
    all.arrive_and_wait();
  }
  std::ranges::sort(taken, {}, &Taken::seconds);
  const double steps = static_cast<double>(workload.steps - kWarmUp);
  return {taken[taken.size() / 2], (*reducer)->memory(), (processor_seconds() - cpu) / steps / kRanks};
}

void measure(const std::string& spec, const Workload& workload) {
  std::vector<LinkOptions> lines;
  if (workload.bits_per_second > 0) {
    LinkOptions line;
    line.shape = LinkShape{workload.bits_per_second / 8, 16384};
    lines.assign(kRanks, line);
  }
  auto mesh = connect_inproc(kRanks, lines);
  if (!mesh) give_up(mesh.error().message);
  std::barrier all(kRanks);
  std::vector<Rank> ranks(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    threads.emplace_back([&, at] { ranks[at] = run_rank(spec, workload, *(*mesh)[at], all); });
  }
  for (std::thread& thread : threads) thread.join();
  double slowest = 0;
  std::uint64_t bytes = 0;
  std::uint64_t peak = 0;
  double cpu = 0;
  for (const Rank& rank : ranks) {
    cpu = std::max(cpu, rank.processor_seconds);
    slowest = std::max(slowest, rank.median.seconds);
    bytes = std::max(bytes, rank.median.bytes_sent);
    peak = std::max(peak, rank.memory.peak_bytes);
  }
  double gradients = 0;
  for (const auto& [name, count] : workload.tensors) gradients += 4.0 * static_cast<double>(count);
  const double bound =
      workload.bits_per_second > 0 ? 8.0 * static_cast<double>(bytes) / workload.bits_per_second : 0;
  std::printf("| %-14s | %-22s | %9.2f | %9.2f | %6.3f | %7.2f | %5.2f |\n", spec.c_str(), workload.name,
              1e3 * slowest, 1e3 * bound, bound > 0 ? slowest / bound : 0, 1e3 * cpu,
              static_cast<double>(peak) / gradients);
  std::fflush(stdout);
}

}  // namespace
}  // namespace deltawire

int main(int argc, char** argv) {
  std::vector<std::string> specs(argv + 1, argv + argc);
  const std::string only = !specs.empty() && specs[0].starts_with("--only=") ? specs[0].substr(7) : "";
  if (!only.empty()) specs.erase(specs.begin());
  if (specs.empty()) specs = {"direct(fp32)", "ring(fp32)"};
  std::printf(
      "%d ranks\n| spec | gradients | ms a step | bound ms | times | CPU ms | peak memory, gradients |\n"
      "|---|---|---|---|---|---|---|\n",
      deltawire::kRanks);
  for (const deltawire::Workload& workload : deltawire::kWorkloads) {
    if (std::string(workload.name).find(only) == std::string::npos) continue;
    for (const std::string& spec : specs) deltawire::measure(spec, workload);
  }
  return 0;
}
