// Codes an input some times, one thread, with the kernels of a target: what bench/instructions.py counts.
//
//   repeat SPEC TARGET INPUT COUNT encode|decode|accumulate|encode-pairs|decode-pairs TIMES
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "codecs/dispatch.h"
#include "coding/inputs.h"
#include "coding/taken.h"
#include "deltawire/codec.h"

namespace deltawire::bench {
namespace {

struct Task {
  std::string spec;
  std::string target;
  std::string input;
  std::size_t count = 0;
  std::string work;
  int times = 0;
};

void run(const Task& task) {
  const bool pairs = task.work.ends_with("-pairs");
  const Input input = make_input(task.input, task.count);
  const std::vector<std::uint32_t> keys = pairs ? keys_for(task.count) : std::vector<std::uint32_t>{};
  const auto target = choose_target(task.target.c_str(), kernel_targets());
  if (!target) throw std::runtime_error("no target '" + task.target + "' here: see deltawire codecs");
  const std::unique_ptr<const Codec> codec = taken(make_codec(task.spec, *target));
  TensorView part{input.values.data(), task.count, DType::kF32};
  part.significance = input.significance.empty() ? nullptr : input.significance.data();
  if (pairs) {
    part.keys = keys.data();
    part.dimension = std::uint64_t{keys.back()} + 1;
  }
  const Sizes sizes = codec->sizes(part);
  std::vector<std::byte> payload(sizes.payload_bytes);
  std::vector<std::byte> scratch(sizes.scratch_bytes);
  std::vector<std::uint32_t> ends(sizes.chunks);
  std::vector<float> residual(pairs ? 0 : task.count);
  std::vector<float> slot(task.count, 0.25F);
  std::vector<std::uint32_t> slot_keys(keys.size());
  const bool encodes = task.work.starts_with("encode");
  const bool keeps = codec->info().error_feedback && !pairs;
  EncodedPart encoded;
  for (int i = 0; i < (encodes ? task.times : 1); ++i) {
    const Residual left = keeps ? Residual(residual) : Residual();
    encoded = taken(codec->encode(part, left, {payload, ends}, {.scratch = scratch}));
  }
  const PartView view{{payload.data(), encoded.payload_bytes},
                      {ends.data(), encoded.chunks},
                      encoded.scalar,
                      encoded.scalar2};
  for (int i = 0; !encodes && i < task.times; ++i) {
    if (pairs) {
      (void)taken(codec->decode_pairs(
          view, {slot.data(), slot.size(), DType::kF32, slot_keys.data(), part.dimension}, 1.0F));
      continue;
    }
    const Into into = task.work == "accumulate" ? Into::kAccumulate : Into::kOverwrite;
    check(codec->decode(view, {slot.data(), slot.size(), DType::kF32}, into, 1.0F, {.scratch = scratch}));
  }
}

}  // namespace
}  // namespace deltawire::bench

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fputs(
        "usage: repeat SPEC TARGET INPUT COUNT encode|decode|accumulate|encode-pairs|decode-pairs TIMES\n",
        stderr);
    return 2;
  }
  try {
    deltawire::bench::run(
        {argv[1], argv[2], argv[3], std::strtoull(argv[4], nullptr, 10), argv[5], std::atoi(argv[6])});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "repeat: %s\n", error.what());
    return 1;
  }
  return 0;
}
