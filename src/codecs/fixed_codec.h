// The codecs that code every element in the same number of bits, in chunks of 65,536 elements: their sizes,
// their chunks, and the sections of their bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "base/errors.h"
#include "codecs/kernels/addends.h"
#include "codecs/kernels/elementwise.h"
#include "codecs/part_checks.h"

namespace deltawire {

inline constexpr std::uint64_t kFixedChunkElements = 65536;

// Bits of every element, by the name of their section.
struct Field {
  std::string_view name;
  unsigned bits = 0;
};

// What belongs to a whole part.
struct Scalars {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};

class FixedCodec : public Codec {
 public:
  std::string spec() const override { return std::string(info().name); }

 protected:
  FixedCodec(const CodecInfo& info, const Field& first, const Field& second = {}) noexcept
      : Codec(info), fields_{first, second} {}

  // The same for a chunk and for a part: a whole chunk ends with a whole byte.
  std::uint64_t bytes_of(std::uint64_t count) const noexcept {
    const unsigned bits = fields_[0].bits + fields_[1].bits;
    return sum_or_max(product_or_max(count / 8, bits), ceil_div(count % 8 * bits, 8));
  }

  // kCorrupt where bits that are not 0 follow the last code, of as many bytes as `count` elements have.
  Status check_padding(const PartView& in, std::uint64_t count) const;

 private:
  virtual Result<Scalars> encode_codes(const PartSource& part, const Exec& exec,
                                       std::byte* payload) const = 0;

  // Finds what no encoder writes, scalars included. REQUIRES, here and below: as many bytes as `count`
  // elements have.
  virtual Status check_codes(const PartView& in, std::uint64_t count) const = 0;

  // Makes the same check.
  virtual Status decode_codes(const PartView& in, const PartTarget& out) const = 0;

  std::uint64_t chunk_bytes() const noexcept { return bytes_of(kFixedChunkElements); }
  Sizes do_sizes(const TensorView& part) const noexcept final {
    return fixed_sizes(bytes_of(part.count), chunk_bytes(), 1);
  }
  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out, const Exec& exec) const final;
  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const final {
    RETURN_IF_ERROR(check_fixed_ends(in, bytes_of(out.count), chunk_bytes(), 1));
    return decode_codes(in, out);
  }
  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const final;

  Field fields_[2];
};

// One that codes each element by itself. `Shape`: a parameter that its kernels take.
template <class... Shape>
class ElementwiseCodec : public FixedCodec {
 public:
  ElementwiseCodec(const CodecInfo& info, const ElementKernels<Shape...>& kernels, TargetId target,
                   const Field& first, const Field& second = {}, Shape... shape) noexcept
      : FixedCodec(info, first, second),
        kernels_(kernels),
        addends_(addends::kernels_for(target)),
        shape_(shape...) {}

 protected:
  const ElementKernels<Shape...>& kernels() const noexcept { return kernels_; }
  const std::tuple<Shape...>& shape() const noexcept { return shape_; }

 private:
  Result<Scalars> encode_codes(const PartSource& part, const Exec&, std::byte* payload) const final {
    const Addends all{part.in, part.residual, nullptr, part.count};
    if (info().finite_only && addends_.add_up(all) >= kInfinityBits) return not_finite();
    std::apply(
        [&](Shape... shape) {
          kernels_.encode(part.in, part.residual, part.left, part.count, shape..., payload);
        },
        shape_);
    return Scalars{};
  }

  Status check_codes(const PartView& in, std::uint64_t count) const override {
    return check_padding(in, count);
  }

  Status decode_codes(const PartView& in, const PartTarget& out) const final {
    RETURN_IF_ERROR(check_codes(in, out.count));
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    std::apply([&](Shape... shape) { kernel(in.payload.data(), out.count, shape..., out.scale, out.slot); },
               shape_);
    return {};
  }

  const ElementKernels<Shape...>& kernels_;
  const addends::Kernels& addends_;
  std::tuple<Shape...> shape_;
};

}  // namespace deltawire
