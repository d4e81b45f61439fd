// Stands in for libFuzzer under compilers that lack it: the seeds of folders (those that are there) as they
// are, then seeded random bytes and mutations of the seeds.
//
//   fuzz_NAME FOLDER... [ROUNDS]
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <vector>

#include "base/brief_testing.h"
#include "base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

// A harness that takes long for one input may ask for fewer.
extern "C" __attribute__((weak)) const int fuzz_rounds;

// A harness may check here that the seeds have reached all that they are for: else a change of format would
// leave them behind, and nobody would notice.
extern "C" __attribute__((weak)) void fuzz_after_seeds();

namespace {

using Input = std::vector<std::uint8_t>;

constexpr std::uint64_t kSeed = 20260101;
// Enough to run every line of a harness, as are half of them in brief; `make check` searches with libFuzzer.
constexpr int kRounds = 4000;

void add_seeds(const std::filesystem::path& folder, std::vector<Input>& seeds) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
}

Input random_bytes(deltawire::CounterRng& rng) {
  Input bytes(rng.next() % 400);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(rng.next());
  return bytes;
}

// One small change: a bit, a byte, a cut, a piece doubled or left out.
void mutate(deltawire::CounterRng& rng, Input& bytes) {
  if (bytes.empty()) return;
  const auto at = static_cast<std::ptrdiff_t>(rng.next() % bytes.size());
  const auto length = static_cast<std::ptrdiff_t>(rng.next() % 9);
  const auto end = std::min(at + length, static_cast<std::ptrdiff_t>(bytes.size()));
  switch (rng.next() % 6) {
    case 0:
    case 1: bytes[static_cast<std::size_t>(at)] ^= static_cast<std::uint8_t>(1u << (rng.next() % 8)); return;
    case 2: bytes[static_cast<std::size_t>(at)] = static_cast<std::uint8_t>(rng.next()); return;
    case 3: bytes.resize(static_cast<std::size_t>(at)); return;
    case 4: bytes.erase(bytes.begin() + at, bytes.begin() + end); return;
    default: {
      const Input piece(bytes.begin() + at, bytes.begin() + end);
      bytes.insert(bytes.begin() + at, piece.begin(), piece.end());
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  int rounds = &fuzz_rounds != nullptr ? fuzz_rounds : kRounds;
  rounds /= deltawire::testing::whole_or_brief(1, 2);
  std::vector<Input> seeds;
  for (const char* argument : std::span(arguments + 1, arguments + count)) {
    if (std::filesystem::is_directory(argument)) {
      add_seeds(argument, seeds);
    } else if (std::atoi(argument) > 0) {
      rounds = std::atoi(argument);
    }
  }
  std::printf("seed %llu, %zu seeds, %d rounds\n", static_cast<unsigned long long>(kSeed), seeds.size(),
              rounds);
  if (seeds.empty()) {
    std::fprintf(stderr, "usage: %s FOLDER-OF-SEEDS... [ROUNDS]\n", arguments[0]);
    return 2;
  }
  for (const Input& seed : seeds) LLVMFuzzerTestOneInput(seed.data(), seed.size());
  if (&fuzz_after_seeds != nullptr) fuzz_after_seeds();
  deltawire::CounterRng rng(kSeed);
  for (int round = 0; round < rounds; ++round) {
    Input bytes = round % 4 == 0 ? random_bytes(rng) : seeds[rng.next() % seeds.size()];
    for (std::uint64_t changes = rng.next() % 4; changes > 0; --changes) mutate(rng, bytes);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  return 0;
}
