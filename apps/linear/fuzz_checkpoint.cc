// Bytes as a checkpoint of 13 weights, by Adam, by SGD or by SGD with averages, as they are and with their
// checksum mended: a state that trains on, or an error that names the file. Seeds are checkpoints of
// `deltawire train linear`.
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <sys/mman.h>

#include "base/crc32c.h"
#include "linear/checkpoint_file.h"
#include "linear/lazy_optimizer.h"

namespace deltawire::linear {
namespace {

constexpr std::size_t kWeights = 13;

void expect(bool holds) {
  if (!holds) std::abort();
}

// In the order of Trainer::save.
Status read_all(CheckpointReader& in, LazyOptimizer& optimizer, std::vector<float>& weights) {
  std::array<std::uint64_t, 4> place{};
  std::vector<double> figures;
  std::vector<std::byte> exchanged;
  Status done = in.values_into(std::span<std::uint64_t>(place));
  if (done) done = in.values(figures);
  if (done) done = in.values_into(std::span<float>(weights));
  if (done) done = optimizer.load(in);
  if (done) done = in.values(exchanged);
  return done ? in.end() : done;
}

struct Training {
  OptimizerKind kind;
  bool averages = false;
};

void load(Bytes bytes, const Training& training) {
  const Descriptor file(memfd_create("checkpoint", MFD_CLOEXEC));
  expect(file.get() >= 0 && write_all(file.get(), bytes));
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  auto in = CheckpointReader::open(path);
  std::vector<float> weights(kWeights);
  OptimizerSettings settings;
  settings.kind = training.kind;
  settings.weight_decay = 0.01;
  auto optimizer = LazyOptimizer::make(settings, kWeights);
  expect(optimizer.has_value());
  if (training.averages) optimizer->keep_average(3);
  const Status read = in ? read_all(*in, *optimizer, weights) : Status(forward_error(in));
  if (!read) return expect(read.error().message.starts_with(path + ": "));
  optimizer->step({.keys = {1, 12}, .values = {1.0F, 2.0F}, .dimension = kWeights}, weights);
  (void)optimizer->squares_of_results(weights);
}

}  // namespace
}  // namespace deltawire::linear

// Each input is six files.
extern "C" {
extern const int fuzz_rounds;
const int fuzz_rounds = 1500;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace deltawire;
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  const auto load_all = [&] {
    linear::load(bytes, {OptimizerKind::kAdam});
    linear::load(bytes, {OptimizerKind::kSgd});
    linear::load(bytes, {.kind = OptimizerKind::kSgd, .averages = true});
  };
  load_all();
  if (size < 4) return 0;
  const std::uint32_t sum = crc32c(Bytes(bytes).first(size - 4));
  std::memcpy(bytes.data() + size - 4, &sum, sizeof sum);
  load_all();
  return 0;
}
