// Stands in for libFuzzer under compilers that lack it: seeded random inputs, and mutations of real files.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "base/random.h"
#include "deltawire/file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::uint64_t kSeed = 20260101;
constexpr int kRounds = 20000;

std::vector<std::uint8_t> random_bytes(deltawire::CounterRng& rng) {
  std::vector<std::uint8_t> bytes(rng.next() % 400);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(rng.next());
  return bytes;
}

std::vector<std::uint8_t> real_file(deltawire::CounterRng& rng, const char* spec) {
  std::vector<float> values(1 + rng.next() % 500);
  for (float& value : values) {
    const double u = rng.next_uniform() - 0.5;
    value = static_cast<float>(u * u * u);
  }
  const std::array<std::uint64_t, 1> shape{values.size()};
  const deltawire::TensorView tensor{values.data(), values.size(), deltawire::DType::kF32};
  const auto file = deltawire::encode_file(tensor, shape, spec, deltawire::Policy{8});
  std::vector<std::uint8_t> bytes;
  if (!file) return bytes;
  for (const std::byte byte : *file) bytes.push_back(std::to_integer<std::uint8_t>(byte));
  return bytes;
}

}  // namespace

int main() {
  std::printf("seed %llu, %d rounds\n", static_cast<unsigned long long>(kSeed), kRounds);
  deltawire::CounterRng rng(kSeed);
  constexpr std::array kSpecs{"fp32", "bf16", "3lc", "3lc:s=1.75", "gcomp", "gcomp:lossless=on"};
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::uint8_t> bytes =
        round % 2 == 0 ? random_bytes(rng) : real_file(rng, kSpecs[rng.next() % kSpecs.size()]);
    // Half of the real files lose their file header, so that the frame comes first.
    if (round % 4 == 1 && bytes.size() > 80) {
      const std::uint32_t header = bytes[12] | static_cast<std::uint32_t>(bytes[13]) << 8;
      if (header < bytes.size()) bytes.erase(bytes.begin(), bytes.begin() + header);
    }
    for (std::uint64_t flips = rng.next() % 4; flips > 0 && !bytes.empty(); --flips) {
      bytes[rng.next() % bytes.size()] ^= static_cast<std::uint8_t>(1u << (rng.next() % 8));
    }
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  return 0;
}
