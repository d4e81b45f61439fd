// How fast rows come from text and from the cache, on one core.
//
//   parse_rows FILE...        plain libsvm text; each file is held in memory, then parsed five times
//
// Prints a line for each file: MB of text a second, parsed from memory; and MB of rows (8 bytes a feature and
// row) a second, read back from a cache with its checksums looked at. Each is the fastest of five, by the
// thread's processor time, so that other programs disturb little, and by the clock. The cache is read from
// the kernel's memory, not from the disk.
#include "linear/parse_rows.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "linear/block_store.h"
#include "linear/load_data.h"

namespace deltawire::linear {
namespace {

constexpr int kTrials = 5;

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Seconds {
  double busy = std::numeric_limits<double>::infinity();
  double passed = std::numeric_limits<double>::infinity();
};

template <class Work>
Seconds fastest(const Work& work) {
  Seconds best;
  for (int trial = 0; trial < kTrials; ++trial) {
    const double busy = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    const double passed = seconds_of(CLOCK_MONOTONIC);
    work();
    best.busy = std::min(best.busy, seconds_of(CLOCK_THREAD_CPUTIME_ID) - busy);
    best.passed = std::min(best.passed, seconds_of(CLOCK_MONOTONIC) - passed);
  }
  return best;
}

[[noreturn]] void give_up(const std::string& message) {
  std::fprintf(stderr, "parse_rows: %s\n", message.c_str());
  std::exit(1);
}

// As training does it: a MiB of text, then the rows go on.
std::uint64_t parse(const std::string& text) {
  constexpr std::size_t kSliceBytes = std::size_t{1} << 20;
  RowParser parser({});
  Place place;
  RowSink sink;
  std::uint64_t rows = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t feed = text.find('\n', std::min(text.size(), at + kSliceBytes) - 1);
    const std::size_t end = feed == std::string::npos ? text.size() : feed + 1;
    if (const Status parsed = parser.parse(std::string_view(text).substr(at, end - at), place, sink);
        !parsed) {
      give_up(parsed.error().message);
    }
    rows += sink.training.rows();
    sink.training.clear();
    at = end;
  }
  return rows;
}

BlockStore load(const std::string& path, const std::string& cache) {
  DataSettings settings{.data = {path}, .tests = {}, .parse = {}, .cache = cache};
  auto store = load_data(settings, {}, [] { return false; });
  if (!store) give_up(store.error().message);
  return *std::move(store);
}

void measure(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (text.empty()) give_up(path + ": cannot be read, or is empty");
  std::uint64_t rows = 0;
  const Seconds parsing = fastest([&] { rows = parse(text); });
  const std::string cache = path + ".bench-cache";
  std::uint64_t bytes = 0;
  load(path, cache);
  const Seconds reading = fastest([&] {
    BlockStore store = load(path, cache);
    bytes = 0;
    for (std::size_t i = 0; i < store.entries().size(); ++i) {
      const auto block = store.load(i);
      if (!block) give_up(block.error().message);
      bytes += (*block)->bytes();
    }
  });
  std::remove(cache.c_str());
  const double text_mb = static_cast<double>(text.size()) / 1e6;
  const double rows_mb = static_cast<double>(bytes) / 1e6;
  std::printf("%s: %llu rows; text %.0f MB/s (clock %.0f); cache %.0f MB/s (clock %.0f)\n", path.c_str(),
              static_cast<unsigned long long>(rows), text_mb / parsing.busy, text_mb / parsing.passed,
              rows_mb / reading.busy, rows_mb / reading.passed);
}

}  // namespace
}  // namespace deltawire::linear

int main(int count, char** arguments) {
  if (count < 2) deltawire::linear::give_up("name files of plain libsvm text");
  for (int i = 1; i < count; ++i) deltawire::linear::measure(arguments[i]);
}
