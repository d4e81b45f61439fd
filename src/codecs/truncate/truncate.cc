// truncate: the upper bits of each value, as many of all. spec.md in this folder defines the bytes.
#include <string>

#include "base/checked.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/truncate/truncate_ops.h"

namespace deltawire::truncate {

namespace {

constexpr std::uint64_t kChunkElements = 65536;

constexpr std::string_view kBits[] = {"10", "11", "12", "13", "14", "15", "16", "17", "18", "19", "20",
                                      "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31"};
static_assert(std::size(kBits) == kMostBits - kFewestBits + 1);
constexpr unsigned kDefaultBits = 14;

constexpr ParameterInfo kParameters[] = {
    {"bits", "10 to 31", "14",
     "kept of each float32: the sign, 8 of exponent, and the upper of the mantissa"},
};

constexpr std::string_view kExamples[] = {"truncate:bits=18", "truncate:bits=29"};

constexpr CodecInfo kInfo = {
    .id = 20,
    .name = "truncate",
    .summary = "mantissas of one length, the rest cut off: the baseline of gcomp's paper",
    .source =
        "Li et al.: Near-Lossless Gradient Compression (SoCC 2024), sections 7.4 and 7.6 (Single-Quant)",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "direct",
    .chunk_elements = kChunkElements,
};

class Truncate final : public Codec {
 public:
  Truncate(unsigned bits, const Kernels& kernels) noexcept : Codec(kInfo), bits_(bits), kernels_(kernels) {}

  std::string spec() const override { return "truncate:bits=" + std::to_string(bits_); }

 private:
  std::uint64_t bytes_of(std::uint64_t count) const noexcept {
    return ceil_div(product_or_max(count, bits_), 8);
  }
  std::uint64_t chunk_bytes() const noexcept { return kChunkElements / 8 * bits_; }

  Sizes do_sizes(const TensorView& part) const noexcept override {
    return fixed_sizes(bytes_of(part.count), chunk_bytes(), 1);
  }

  // A whole chunk ends with a whole byte, so the part is one stream of bits.
  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out, const Exec&) const override {
    kernels_.encode(part.in, part.residual, part.left, part.count, bits_, out.payload.data());
    return write_fixed_ends(bytes_of(part.count), chunk_bytes(), 1, out.chunk_ends);
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    if (auto ok = check_part(in, out.count); !ok) return ok;
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    kernel(in.payload.data(), out.count, bits_, out.scale, out.slot);
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (auto ok = check_part(in, count); !ok) return ok;
    add_section(sections, "signs and exponents", count * 9);
    add_section(sections, "mantissas", count * (bits_ - 9));
    add_section(sections, "padding", in.payload.size() * 8 - count * bits_);
    return {};
  }

  Status check_part(const PartView& in, std::uint64_t count) const {
    if (auto ok = check_fixed_ends(in, bytes_of(count), chunk_bytes(), 1); !ok) return ok;
    const std::uint64_t used = count * bits_ % 8;  // of the last byte
    if (used == 0 || std::to_integer<unsigned>(in.payload.back()) >> used == 0) return {};
    return fail(ErrorCode::kCorrupt, "truncate: bits follow the last element");
  }

  unsigned bits_;
  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  const auto bits = choice_parameter(spec, "bits", kBits, kDefaultBits - kFewestBits);
  if (!bits) return forward_error(bits);
  return std::make_unique<const Truncate>(kFewestBits + static_cast<unsigned>(*bits), kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::truncate
