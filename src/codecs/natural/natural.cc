// natural: every value rounded by chance to a power of two, without bias: sign and exponent, 9 bits. spec.md
// in this folder defines the bytes.
#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "codecs/natural/natural_ops.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/two_passes.h"

namespace deltawire::natural {

namespace {

constexpr std::uint64_t kChunkBytes = kChunkElements + sign_bytes(kChunkElements);

constexpr CodecInfo kInfo = {
    .id = 12,
    .name = "natural",
    .summary = "powers of two, rounded by chance without bias: 9 bits a value",
    .source =
        "Horvath, Ho, Horvath, Sahu, Canini, Richtarik: Natural Compression for Distributed Deep Learning "
        "(MSML 2022; arXiv 2019), C_nat",
    .default_pattern = "direct",
    .finite_only = true,
    .chunk_elements = kChunkElements,
};

std::uint64_t bytes_of(std::uint64_t count) noexcept {
  return sum_or_max(count, sign_bytes(count));
}

class Natural final : public Codec {
 public:
  explicit Natural(const Kernels& kernels) noexcept : Codec(kInfo), kernels_(kernels) {}

  std::string spec() const override { return "natural"; }

  // By the paper's theorem 1, of its second moment: 9/8.
  double gain() const noexcept override { return std::sqrt(9.0 / 8); }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    return fixed_sizes(bytes_of(part.count), kChunkBytes, 1);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const auto [first, second] = two_passes(part);
    const std::uint32_t largest = kernels_.sum_up(first);
    if (largest >= kInfinityBits) return not_finite();
    if (largest > kLargestBits) {
      return fail(ErrorCode::kRange,
                  "natural: a value is beyond 2^127, above which float32 has no power of two to round up to: "
                  "scale the tensor down");
    }
    const CounterRng random(exec.stream);
    for (std::uint64_t at = 0; at < part.count; at += kChunkElements) {
      const std::uint64_t count = std::min(part.count - at, kChunkElements);
      kernels_.encode(some_of(second, at, count), {random, at}, out.payload.data() + bytes_of(at));
    }
    return write_fixed_ends(bytes_of(part.count), kChunkBytes, 1, out.chunk_ends);
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    if (auto ok = check_part(in, out.count); !ok) return ok;
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    for (std::uint64_t at = 0; at < out.count; at += kChunkElements) {
      const std::uint64_t count = std::min(out.count - at, kChunkElements);
      kernel(in.payload.data() + bytes_of(at), count, out.scale, out.slot + at);
    }
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (auto ok = check_part(in, count); !ok) return ok;
    add_section(sections, "exponents", count * 8);
    add_section(sections, "signs", count);
    add_section(sections, "padding", in.payload.size() * 8 - count * 9);
    return {};
  }

  Status check_part(const PartView& in, std::uint64_t count) const {
    if (auto ok = check_fixed_ends(in, bytes_of(count), kChunkBytes, 1); !ok) return ok;
    for (std::uint64_t at = 0; at < count; at += kChunkElements) {
      const std::uint64_t elements = std::min(count - at, kChunkElements);
      const std::byte* const chunk = in.payload.data() + bytes_of(at);
      const std::uint64_t bad = kernels_.find_bad_code(chunk, elements);
      if (bad == elements) continue;
      return fail(ErrorCode::kCorrupt,
                  "natural: element " + std::to_string(at + bad) +
                      (chunk[bad] == std::byte{0} ? " is a negative 0" : " has the exponent 255"));
    }
    if (count % 8 == 0 || std::to_integer<unsigned>(in.payload.back()) >> count % 8 == 0) return {};
    return fail(ErrorCode::kCorrupt, "natural: bits follow the last sign");
  }

  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec&, TargetId target) {
  return std::make_unique<const Natural>(kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::natural
