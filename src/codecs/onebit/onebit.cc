// onebit: the sign of each value, and the mean of each side, with error feedback. spec.md in this folder
// defines the bytes.
#include <bit>

#include "base/checked.h"
#include "base/float_environment.h"
#include "codecs/onebit/onebit_ops.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"

namespace deltawire::onebit {

namespace {

constexpr std::uint64_t kChunkElements = 65536;
constexpr std::uint64_t kChunkBytes = kChunkElements / 8;

constexpr CodecInfo kInfo = {
    .id = 9,
    .name = "onebit",
    .summary = "signs and the mean of each side, with error feedback: 32x smaller",
    .source = "Seide, Fu, Droppo, Li, Yu: 1-Bit Stochastic Gradient Descent (Interspeech 2014), section 3",
    .default_pattern = "direct",
    .error_feedback = true,
    .finite_only = true,
    .scalars = 2,
    .chunk_elements = kChunkElements,
};

std::uint64_t bytes_of(std::uint64_t count) noexcept {
  return ceil_div(count, 8);
}

float mean_of(double sum, std::uint64_t count) noexcept {
  return count == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(count));
}

class Onebit final : public Codec {
 public:
  explicit Onebit(const Kernels& kernels) noexcept : Codec(kInfo), kernels_(kernels) {}

  std::string spec() const override { return "onebit"; }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    return fixed_sizes(bytes_of(part.count), kChunkBytes, 1);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out, const Exec&) const override {
    // Where the new residual lies apart, the sums go there: the second pass then reads one array, not two.
    const bool apart = part.left != part.residual;
    Addends x{part.in, part.residual, apart ? part.left : nullptr, part.count};
    const Sides sides = kernels_.split(x, out.payload.data());
    if (sides.largest >= kInfinityBits) return not_finite();
    const Means means{mean_of(sides.high, part.count - sides.negatives),
                      -mean_of(sides.low, sides.negatives)};
    if (apart) x = {part.left, nullptr, part.left, part.count};
    x.left = part.left;
    if (x.left != nullptr) kernels_.take_means(x, means);
    EncodedPart encoded = write_fixed_ends(bytes_of(part.count), kChunkBytes, 1, out.chunk_ends);
    encoded.scalar = std::bit_cast<std::uint32_t>(means.high);
    encoded.scalar2 = sides.negatives > 0 ? std::bit_cast<std::uint32_t>(means.low) : 0;
    return encoded;
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    if (auto ok = check_part(in, out.count); !ok) return ok;
    const Means values{FloatEnvironment::pinned(std::bit_cast<float>(in.scalar)) * out.scale,
                       FloatEnvironment::pinned(std::bit_cast<float>(in.scalar2)) * out.scale};
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    kernel(in.payload.data(), out.count, values, out.slot);
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (auto ok = check_part(in, count); !ok) return ok;
    add_section(sections, "signs", count);
    add_section(sections, "padding", in.payload.size() * 8 - count);
    return {};
  }

  Status check_part(const PartView& in, std::uint64_t count) const {
    if (auto ok = check_fixed_ends(in, bytes_of(count), kChunkBytes, 1); !ok) return ok;
    if (in.scalar >= kInfinityBits) return bad_mean("high", in.scalar, "a finite number >= 0");
    const std::uint32_t low = in.scalar2 & kMagnitudeMask;
    if (in.scalar2 != 0 && (in.scalar2 == low || low == 0 || low >= kInfinityBits)) {
      return bad_mean("low", in.scalar2, "a finite number below 0, or 0 without negative values");
    }
    const std::uint64_t bytes = in.payload.size();
    if (in.scalar2 == 0 && kernels_.find_set(in.payload.data(), bytes) < bytes) {
      return fail(ErrorCode::kCorrupt, "onebit: a value is negative although the part has no mean for it");
    }
    if (count % 8 == 0 || std::to_integer<unsigned>(in.payload.back()) >> count % 8 == 0) return {};
    return fail(ErrorCode::kCorrupt, "onebit: bits follow the last element");
  }

  static Status bad_mean(std::string_view which, std::uint32_t bits, std::string_view wanted) {
    return fail(ErrorCode::kCorrupt, "onebit: the mean \"" + std::string(which) + "\" is " +
                                         number_text(std::bit_cast<float>(bits)) + ", not " +
                                         std::string(wanted));
  }

  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec&, TargetId target) {
  return std::make_unique<const Onebit>(kernels_for(target));
}

}  // namespace

Registration registration() noexcept {
  return {&kInfo, make};
}

}  // namespace deltawire::onebit
