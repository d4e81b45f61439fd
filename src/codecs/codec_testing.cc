#include "codecs/codec_testing.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numbers>
#include <stdexcept>
#include <unordered_map>

#include <gtest/gtest.h>

#include "base/random.h"

namespace deltawire::testing {

namespace {

constexpr std::size_t kGuard = 64;
constexpr std::byte kGuardByte{0xA5};
constexpr std::uint32_t kGuardEnd = 0xA5A5A5A5;

std::vector<Expectation>& expectations() {
  static std::vector<Expectation> all;
  return all;
}

template <class T>
struct Guarded {
  Guarded(std::uint64_t count, T inside, T guard)
      : size(count), mark(guard), memory(count + 2 * kGuard, guard) {
    std::fill_n(memory.begin() + kGuard, count, inside);
  }
  std::span<T> inside() { return {memory.data() + kGuard, size}; }
  bool intact() const {
    const auto kept = [this](std::size_t i) { return std::memcmp(&memory[i], &mark, sizeof(T)) == 0; };
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (!kept(i) || !kept(kGuard + size + i)) return false;
    }
    return true;
  }

  std::size_t size;
  T mark;
  std::vector<T> memory;
};

}  // namespace

std::unique_ptr<const Codec> codec_of(std::string_view spec) {
  auto codec = make_codec(spec);
  if (!codec) throw std::runtime_error(codec.error().message);
  return std::move(*codec);
}

Result<Encoded> encode(const Codec& codec, std::span<const float> values, std::span<float> residual) {
  return encode_view(codec, {values.data(), values.size(), DType::kF32}, residual);
}

namespace {

Result<Encoded> encode_once(const Codec& codec, const TensorView& part, const Residual& residual,
                            std::uint64_t stream) {
  const Sizes sizes = codec.sizes(part);
  Guarded<std::byte> payload(sizes.payload_bytes, std::byte{0}, kGuardByte);
  Guarded<std::byte> scratch(sizes.scratch_bytes, std::byte{0xFF}, kGuardByte);
  Guarded<std::uint32_t> ends(sizes.chunks, 0, kGuardEnd);
  const auto written = codec.encode(part, residual, {payload.inside(), ends.inside()},
                                    {.stream = stream, .scratch = scratch.inside()});
  EXPECT_TRUE(payload.intact() && scratch.intact() && ends.intact()) << "wrote outside its buffers";
  if (!written) return forward_error(written);
  EXPECT_LE(written->payload_bytes, sizes.payload_bytes);
  EXPECT_LE(written->chunks, sizes.chunks);
  Encoded result;
  result.payload.assign(payload.inside().begin(),
                        payload.inside().begin() + static_cast<std::ptrdiff_t>(written->payload_bytes));
  result.chunk_ends.assign(ends.inside().begin(), ends.inside().begin() + written->chunks);
  result.scalar = written->scalar;
  result.scalar2 = written->scalar2;
  EXPECT_EQ(result.chunk_ends.empty() ? 0U : result.chunk_ends.back(), written->payload_bytes);
  return result;
}

}  // namespace

Result<Encoded> encode_view(const Codec& codec, const TensorView& part, std::span<float> residual,
                            std::uint64_t stream) {
  if (residual.empty()) return encode_once(codec, part, residual, stream);
  const std::vector<float> before(residual.begin(), residual.end());
  Guarded<float> after(before.size(), 0.25F, 1234.5F);
  const auto apart = encode_once(codec, part, {residual, after.inside()}, stream);
  EXPECT_TRUE(same_bits(residual, before)) << "changed the residual that lies apart";
  EXPECT_TRUE(after.intact()) << "wrote outside the new residual";
  auto in_place = encode_once(codec, part, residual, stream);
  EXPECT_EQ(in_place.has_value(), apart.has_value());
  EXPECT_TRUE(in_place || same_bits(residual, before)) << "changed the residual on an error";
  if (!in_place && !apart) {
    EXPECT_EQ(in_place.error().message, apart.error().message);
  }
  if (!in_place || !apart) return in_place;
  EXPECT_TRUE(same_bits(residual, after.inside())) << "left another residual in place";
  EXPECT_EQ(in_place->payload, apart->payload);
  EXPECT_EQ(in_place->chunk_ends, apart->chunk_ends);
  return in_place;
}

Result<std::vector<float>> decode(const Codec& codec, const PartView& in, std::uint64_t count, Into into,
                                  float scale, float start) {
  Guarded<float> slot(count, start, 1234.5F);
  const TensorSlot out{slot.inside().data(), count, DType::kF32};
  Guarded<std::byte> scratch(codec.decode_scratch(out), std::byte{0xFF}, kGuardByte);
  const auto status = codec.decode(in, out, into, scale, {.scratch = scratch.inside()});
  EXPECT_TRUE(slot.intact()) << "wrote outside its slot";
  EXPECT_TRUE(scratch.intact()) << "wrote outside its scratch";
  if (!status) return forward_error(status);
  return std::vector<float>(slot.inside().begin(), slot.inside().end());
}

Encoded coded(std::string_view spec, const Floats& values, std::uint64_t stream) {
  auto part = encode_view(*codec_of(spec), {values.data(), values.size(), DType::kF32}, {}, stream);
  if (!part) throw std::runtime_error(part.error().message);
  return std::move(*part);
}

Ints bytes_of(std::string_view spec, const Floats& values) {
  return to_ints(coded(spec, values).payload);
}

Floats round_trip(std::string_view spec, const Floats& values, std::uint64_t stream) {
  return *decode(*codec_of(spec), coded(spec, values, stream).view(), values.size());
}

ErrorCode verdict_of(std::string_view spec, const Encoded& part, std::uint64_t count) {
  const auto codec = codec_of(spec);
  const auto code = [](const auto& result) { return result ? kAccepted : result.error().code; };
  const ErrorCode overwrite = code(decode(*codec, part.view(), count));
  EXPECT_EQ(code(decode(*codec, part.view(), count, Into::kAccumulate, 2, 1)), overwrite);
  std::vector<Section> sections;
  EXPECT_EQ(code(codec->describe(part.view(), count, sections)), overwrite);
  return overwrite;
}

Encoded one_chunk(std::vector<int> bytes, std::uint32_t scalar) {
  Encoded part;
  for (const int value : bytes) part.payload.push_back(static_cast<std::byte>(value));
  part.chunk_ends = {static_cast<std::uint32_t>(bytes.size())};
  part.scalar = scalar;
  return part;
}

std::vector<int> to_ints(std::span<const std::byte> bytes) {
  std::vector<int> ints;
  for (const std::byte value : bytes) ints.push_back(std::to_integer<int>(value));
  return ints;
}

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

Expects::Expects(Expectation expectation) {
  expectations().push_back(std::move(expectation));
}

const Expectation& expectation_of(std::string_view spec) {
  for (const std::string_view each_name : {spec, spec.substr(0, spec.find(':'))}) {
    for (const Expectation& each : expectations()) {
      if (each.codec == each_name) return each;
    }
  }
  throw std::runtime_error("no test says what to expect of " + std::string(spec) + ": see testing::Expects");
}

std::vector<std::string> conformance_specs() {
  std::vector<std::string> specs = every_spec();
  for (const Expectation& each : expectations()) {
    specs.insert(specs.end(), each.limits.begin(), each.limits.end());
  }
  return specs;
}

std::string test_name(std::string_view spec) {
  std::string name;
  for (const char c : spec) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

std::vector<float> normal_values(std::uint64_t count, std::uint64_t seed) {
  // Drawn once: every spec and target asks for the same ones, and logarithms take longer than most codecs.
  static thread_local std::unordered_map<std::uint64_t, std::vector<float>> drawn;
  const CounterRng random(seed);
  std::vector<float>& values = drawn[seed];
  for (std::uint64_t i = values.size(); i < count; ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - random.uniform_at(2 * i)));
    values.push_back(
        static_cast<float>(radius * std::cos(2 * std::numbers::pi * random.uniform_at(2 * i + 1))));
  }
  return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count)};
}

std::vector<float> sparse_values(std::uint64_t count, double share, std::uint64_t seed) {
  CounterRng random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const double draw = random.next_uniform();
    value = draw < share / 2 ? 1.0F : draw < share ? -1.0F : 0.0F;
  }
  return values;
}

double largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::fmax(largest, std::fabs(value));
  return largest;
}

double sum_by_lanes(std::span<const float> values) {
  double total = 0;
  for (std::size_t block = 0; block < values.size(); block += 65536) {
    std::vector<double> lanes(16, 0.0);
    for (std::size_t lane = 0; lane < 16; ++lane) {
      for (std::size_t i = lane; i < 65536 && block + i < values.size(); i += 16) {
        lanes[lane] += std::fabs(static_cast<double>(values[block + i]));
      }
    }
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    total += lanes[0];
  }
  return total;
}

}  // namespace deltawire::testing
