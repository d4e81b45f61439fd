// natural: every value rounded by chance to a power of two, without bias: sign and exponent, 9 bits. spec.md
// in this folder defines the bytes.
#include <algorithm>
#include <cmath>

#include "codecs/baselines/natural/natural_ops.h"
#include "codecs/fixed_codec.h"
#include "codecs/registration.h"
#include "codecs/two_passes.h"

namespace deltawire::natural {

namespace {

constexpr CodecInfo kInfo = {
    .id = 12,
    .name = "natural",
    .summary = "powers of two, rounded by chance without bias: 9 bits a value",
    .source =
        "Horvath, Ho, Horvath, Sahu, Canini, Richtarik: Natural Compression for Distributed Deep Learning "
        "(MSML 2022; arXiv 2019), C_nat",
    .default_pattern = "direct",
    .finite_only = true,
    .chunk_elements = kFixedChunkElements,
};

class Natural final : public FixedCodec {
 public:
  explicit Natural(const Kernels& kernels) noexcept
      : FixedCodec(kInfo, Field{"exponents", 8}, Field{"signs", 1}), kernels_(kernels) {}

  // By the paper's theorem 1, of its second moment: 9/8.
  double gain() const noexcept override { return std::sqrt(9.0 / 8); }

 private:
  Result<Scalars> encode_codes(const PartSource& part, const Exec& exec, std::byte* payload) const override {
    const auto [first, second] = two_passes(part);
    const std::uint32_t largest = kernels_.sum_up(first);
    if (largest >= kInfinityBits) return not_finite();
    if (largest > kLargestBits) {
      return fail(ErrorCode::kRange,
                  "natural: a value is beyond 2^127, above which float32 has no power of two to round up to: "
                  "scale the tensor down");
    }
    const CounterRng random(exec.stream);
    for (std::uint64_t at = 0; at < part.count; at += kFixedChunkElements) {
      const std::uint64_t count = std::min(part.count - at, kFixedChunkElements);
      kernels_.encode(some_of(second, at, count), {random, at}, payload + bytes_of(at));
    }
    return Scalars{};
  }

  Status check_codes(const PartView& in, std::uint64_t count) const override {
    for (std::uint64_t at = 0; at < count; at += kFixedChunkElements) {
      const std::uint64_t elements = std::min(count - at, kFixedChunkElements);
      const std::byte* const chunk = in.payload.data() + bytes_of(at);
      const std::uint64_t bad = kernels_.find_bad_code(chunk, elements);
      if (bad == elements) continue;
      return fail(ErrorCode::kCorrupt,
                  "natural: element " + std::to_string(at + bad) +
                      (chunk[bad] == std::byte{0} ? " is a negative 0" : " has the exponent 255"));
    }
    if (!has_padding(in, count)) return {};
    return fail(ErrorCode::kCorrupt, "natural: bits follow the last sign");
  }

  Status decode_codes(const PartView& in, const PartTarget& out) const override {
    if (auto ok = check_codes(in, out.count); !ok) return ok;
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    for (std::uint64_t at = 0; at < out.count; at += kFixedChunkElements) {
      const std::uint64_t count = std::min(out.count - at, kFixedChunkElements);
      kernel(in.payload.data() + bytes_of(at), count, out.scale, out.slot + at);
    }
    return {};
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
