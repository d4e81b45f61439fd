// The codecs whose blocks of elements share a scale or a step: chunks of a fixed size, and the loops over
// them.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <string_view>

#include "base/checked.h"
#include "base/errors.h"
#include "codecs/part_checks.h"
#include "codecs/two_passes.h"

namespace deltawire {

inline constexpr std::uint64_t kBlockChunkElements = 65536;

// The blocks of so many elements, the last of which may be shorter.
inline std::uint64_t blocks_of(std::uint64_t count, std::uint32_t block) noexcept {
  return count / block + (count % block != 0 ? 1 : 0);
}

// What precedes a chunk's codes: for each block a scale or a step.
struct BlockHead {
  std::string_view section;
  std::uint64_t bytes = 0;
};

// `Shape` says how values are coded: the elements of a `block`, and the `bits` of a code, 8, or 4: that of an
// even element is the lower half of its byte. It codes chunks, the scales of all blocks and then all codes:
//
//   void encode(const Addends& x, std::byte* chunk) const       left, where that is wanted, = what it leaves
//   void decode(const std::byte* chunk, std::uint64_t count, const PartTarget& out, float* slot) const
template <class Shape>
class BlockCodec : public Codec {
 protected:
  BlockCodec(const CodecInfo& info, const Shape& shape, const BlockHead& head, TargetId target) noexcept
      : Codec(info), shape_(shape), head_(head), addends_(addends::kernels_for(target)) {}

  const Shape& shape() const noexcept { return shape_; }

 private:
  // Finds what no encoder writes, padding aside. REQUIRES: bytes_of(count) bytes.
  virtual Status check_chunk(const ChunkBytes& chunk, std::size_t number, std::uint32_t count) const = 0;

  Status check_part(const PartView& in, std::uint64_t count) const {
    RETURN_IF_ERROR(check_fixed_ends(in, bytes_of(count), chunk_bytes(), 1));
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      RETURN_IF_ERROR(check_chunk(chunk_of(in, i), i, elements_of_chunk(count, i, kBlockChunkElements)));
    }
    const bool odd = shape_.bits == 4 && count % 2 != 0;
    if (odd && std::to_integer<unsigned>(in.payload[in.chunk_ends.back() - 1]) >> 4 != 0) {
      return chunk_error(info().name, ErrorCode::kCorrupt, in.chunk_ends.size() - 1,
                         "bits follow the last element");
    }
    return {};
  }

  std::uint64_t code_bytes(std::uint64_t count) const noexcept {
    return count / 8 * shape_.bits + ceil_div(count % 8 * shape_.bits, 8);  // no more than `count`
  }

  // The same for a chunk and for a part, as a whole chunk's blocks are whole.
  std::uint64_t bytes_of(std::uint64_t count) const noexcept {
    return sum_or_max(product_or_max(blocks_of(count, shape_.block), head_.bytes), code_bytes(count));
  }
  std::uint64_t chunk_bytes() const noexcept { return bytes_of(kBlockChunkElements); }

  Sizes do_sizes(const TensorView& part) const noexcept final {
    return fixed_sizes(bytes_of(part.count), chunk_bytes(), 1);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out, const Exec&) const final {
    assert(bytes_of(part.count) <= out.payload.size());
    const auto [first, second] = two_passes(part);
    if (addends_.add_up(first) >= kInfinityBits) return not_finite();
    for (std::uint64_t at = 0; at < part.count; at += kBlockChunkElements) {
      const Addends chunk = some_of(second, at, std::min(part.count - at, kBlockChunkElements));
      shape_.encode(chunk, out.payload.data() + at / kBlockChunkElements * chunk_bytes());
    }
    return write_fixed_ends(bytes_of(part.count), chunk_bytes(), 1, out.chunk_ends);
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const final {
    RETURN_IF_ERROR(check_part(in, out.count));
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      shape_.decode(chunk_of(in, i).at, elements_of_chunk(out.count, i, kBlockChunkElements), out,
                    out.slot + i * kBlockChunkElements);
    }
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const final {
    RETURN_IF_ERROR(check_part(in, count));
    add_section(sections, head_.section, blocks_of(count, shape_.block) * head_.bytes * 8);
    add_section(sections, "codes", count * shape_.bits);
    add_section(sections, "padding", code_bytes(count) * 8 - count * shape_.bits);
    return {};
  }

  Shape shape_;
  BlockHead head_;
  const addends::Kernels& addends_;
};

}  // namespace deltawire
