// The codecs whose blocks of elements share a scale or a step: chunks of a fixed size, and the loops over
// them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "codecs/kernels/blocks.h"
#include "codecs/part_checks.h"
#include "codecs/two_passes.h"

namespace deltawire {

inline constexpr std::uint64_t kBlockChunkElements = 65536;

template <class Shape>
class BlockCodec : public Codec {
 protected:
  BlockCodec(const CodecInfo& info, const Shape& shape, const BlockKernels<Shape>& kernels) noexcept
      : Codec(info), shape_(shape), kernels_(kernels) {}

  const Shape& shape() const noexcept { return shape_; }
  const BlockKernels<Shape>& kernels() const noexcept { return kernels_; }

  Status check_part(const PartView& in, std::uint64_t count) const {
    if (auto ok = check_fixed_ends(in, bytes_of(count), chunk_bytes(), 1); !ok) return ok;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      if (auto ok = check_chunk(chunk_of(in, i), i, elements_of_chunk(count, i, kBlockChunkElements)); !ok) {
        return ok;
      }
    }
    return {};
  }

 private:
  // The same for a chunk and for a part, as a whole chunk's blocks are whole.
  virtual std::uint64_t bytes_of(std::uint64_t count) const noexcept = 0;

  // Finds what no encoder writes. REQUIRES: bytes_of(count) bytes.
  virtual Status check_chunk(const ChunkBytes& chunk, std::size_t number, std::uint32_t count) const = 0;

  std::uint64_t chunk_bytes() const noexcept { return bytes_of(kBlockChunkElements); }

  Sizes do_sizes(const TensorView& part) const noexcept final {
    return fixed_sizes(bytes_of(part.count), chunk_bytes(), 1);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out, const Exec&) const final {
    const auto [first, second] = two_passes(part);
    if (kernels_.sum_up(first) >= kInfinityBits) return not_finite();
    for (std::uint64_t at = 0; at < part.count; at += kBlockChunkElements) {
      const Addends chunk = some_of(second, at, std::min(part.count - at, kBlockChunkElements));
      kernels_.encode(chunk, shape_, out.payload.data() + at / kBlockChunkElements * chunk_bytes());
    }
    return write_fixed_ends(bytes_of(part.count), chunk_bytes(), 1, out.chunk_ends);
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const final {
    if (auto ok = check_part(in, out.count); !ok) return ok;
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const std::uint32_t count = elements_of_chunk(out.count, i, kBlockChunkElements);
      kernel(chunk_of(in, i).at, count, shape_, out.scale, out.slot + i * kBlockChunkElements);
    }
    return {};
  }

  Shape shape_;
  const BlockKernels<Shape>& kernels_;
};

}  // namespace deltawire
