// General compressors over the same bytes. They keep every bit and know nothing of tensors, so what they gain
// is little; the question is what time that costs.
#include <algorithm>
#include <cstring>
#include <functional>

#include "coding/measure.h"
#include "coding/rows.h"

#if DELTAWIRE_HAS_ZSTD
#include <zstd.h>
#endif
#if DELTAWIRE_HAS_LZ4
#include <lz4.h>
#endif
#if DELTAWIRE_HAS_ZLIB
#include <zlib.h>
#endif
#if DELTAWIRE_HAS_BLOSC
#include <blosc.h>
#endif

namespace deltawire::bench {

namespace {

using Buffer = std::vector<char>;

// Both return the bytes that they wrote, 0 on an error.
struct Rival {
  const char* name;
  std::size_t most;  // elements that are worth waiting for
  std::function<std::size_t(const Buffer& from, Buffer& to)> compress;
  std::function<std::size_t(const char* from, std::size_t bytes, Buffer& to)> decompress;
};

constexpr std::size_t kAll = std::size_t{1} << 40;

std::vector<Rival> rivals() {
  std::vector<Rival> found;
#if DELTAWIRE_HAS_ZSTD
  for (const auto& [name, level] : {std::pair{"zstd-1", 1}, {"zstd-3", 3}}) {
    found.push_back({name, kAll,
                     [level](const Buffer& from, Buffer& to) {
                       const std::size_t bytes =
                           ZSTD_compress(to.data(), to.size(), from.data(), from.size(), level);
                       return ZSTD_isError(bytes) != 0 ? 0 : bytes;
                     },
                     [](const char* from, std::size_t bytes, Buffer& to) {
                       return ZSTD_decompress(to.data(), to.size(), from, bytes);
                     }});
  }
#endif
#if DELTAWIRE_HAS_LZ4
  found.push_back({"lz4", kAll,
                   [](const Buffer& from, Buffer& to) {
                     return static_cast<std::size_t>(LZ4_compress_default(
                         from.data(), to.data(), static_cast<int>(from.size()), static_cast<int>(to.size())));
                   },
                   [](const char* from, std::size_t bytes, Buffer& to) {
                     return static_cast<std::size_t>(LZ4_decompress_safe(
                         from, to.data(), static_cast<int>(bytes), static_cast<int>(to.size())));
                   }});
#endif
#if DELTAWIRE_HAS_ZLIB
  found.push_back({"zlib-1", std::size_t{1} << 20,
                   [](const Buffer& from, Buffer& to) {
                     auto bytes = static_cast<uLongf>(to.size());
                     const int fault = compress2(reinterpret_cast<Bytef*>(to.data()), &bytes,
                                                 reinterpret_cast<const Bytef*>(from.data()), from.size(), 1);
                     return fault == Z_OK ? std::size_t{bytes} : 0;
                   },
                   [](const char* from, std::size_t bytes, Buffer& to) {
                     auto got = static_cast<uLongf>(to.size());
                     const int fault = uncompress(reinterpret_cast<Bytef*>(to.data()), &got,
                                                  reinterpret_cast<const Bytef*>(from), bytes);
                     return fault == Z_OK ? std::size_t{got} : 0;
                   }});
#endif
#if DELTAWIRE_HAS_BLOSC
  found.push_back(
      {"blosc-bitshuffle", kAll,
       [](const Buffer& from, Buffer& to) {
         return static_cast<std::size_t>(
             std::max(0, blosc_compress_ctx(1, BLOSC_BITSHUFFLE, sizeof(float), from.size(), from.data(),
                                            to.data(), to.size(), BLOSC_LZ4_COMPNAME, 0, 1)));
       },
       [](const char* from, std::size_t, Buffer& to) {
         return static_cast<std::size_t>(std::max(0, blosc_decompress_ctx(from, to.data(), to.size(), 1)));
       }});
#endif
  return found;
}

void run_rival(benchmark::State& state, const Rival& rival, const std::string& input, std::size_t count,
               bool compresses) {
  const Input& numbers = input_of(input, count);
  Buffer from(count * sizeof(float));
  std::memcpy(from.data(), numbers.values.data(), from.size());
  Buffer packed(from.size() + from.size() / 64 + 4096);
  Buffer back(from.size());
  const std::size_t bytes = rival.compress(from, packed);
  if (bytes == 0 || rival.decompress(packed.data(), bytes, back) != from.size() || back != from) {
    state.SkipWithError("what came back is not what was compressed");
    return;
  }
  Work work{.count = count, .payload_bytes = bytes, .clock = Clock::kThread};
  if (compresses) {
    work.run = [&] { rival.compress(from, packed); };
  } else {
    work.run = [&] { rival.decompress(packed.data(), bytes, back); };
  }
  measure(state, work);
}

// What selecting the largest of each sign costs with the standard library alone; it moves what it gets.
void run_selection(benchmark::State& state, std::size_t count) {
  const std::vector<float>& values = input_of("laplace", count).values;
  const auto keep = static_cast<std::ptrdiff_t>(count / 100);
  std::vector<float> positive(count);
  std::vector<float> negative(count);
  measure(state, {.count = count,
                  .payload_bytes = 0,
                  .clock = Clock::kThread,
                  .run =
                      [&] {
                        std::nth_element(positive.begin(), positive.begin() + keep, positive.end(),
                                         std::greater<>());
                        std::nth_element(negative.begin(), negative.begin() + keep, negative.end());
                      },
                  .restore =
                      [&] {
                        positive = values;
                        negative = values;
                      }});
}

}  // namespace

void register_rivals() {
  for (const Size& size : kSizes) {
    for (const Rival& rival : rivals()) {
      if (size.count > rival.most) continue;
      for (const char* input : {"normal", "layers", "zeros"}) {
        for (const bool compresses : {true, false}) {
          add_row(
              std::string(compresses ? "encode/" : "decode/") + rival.name + "/" + input + "/" + size.name,
              size.count,
              [=](benchmark::State& state) { run_rival(state, rival, input, size.count, compresses); });
        }
      }
    }
    add_row(std::string("select/nth_element-twice/laplace/") + size.name, size.count,
            [size](benchmark::State& state) { run_selection(state, size.count); });
  }
}

}  // namespace deltawire::bench
