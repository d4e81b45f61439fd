#include "codecs/planes/plane_codec.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <vector>

#include "base/bit_functions.h"
#include "base/checked.h"
#include "base/errors.h"
#include "codecs/kernels/addends.h"
#include "codecs/part_checks.h"

namespace deltawire::planes {

namespace {

constexpr std::string_view kPlaneSwitch[] = {"on", "off"};
constexpr std::byte kStored{0};
constexpr std::byte kCompressed{1};

// Of `count` elements' chunk, or of a whole one; what lies behind it is aligned.
std::uint64_t raw_room(std::uint64_t count) noexcept {
  return ceil_div(std::min(count, kChunkElements) * sizeof(float), kScratchAlignment) * kScratchAlignment;
}

constexpr unsigned kPlanes = 4;

// Where byte `plane` of value i lies, from the lowest on: with `planes`, bytes of equal significance lie
// together, where equal bytes are near each other.
std::uint64_t place_of(std::uint64_t i, unsigned plane, std::uint64_t count, bool planes) noexcept {
  return planes ? plane * count + i : kPlanes * i + plane;
}

std::uint32_t joined_bits(const std::byte* bytes, std::uint64_t i, std::uint64_t count,
                          bool planes) noexcept {
  std::uint32_t bits = 0;
  for (unsigned p = 0; p < kPlanes; ++p) {
    bits |= static_cast<std::uint32_t>(bytes[place_of(i, p, count, planes)]) << 8 * p;
  }
  return bits;
}

// bytes = those of in + residual, or of in bit for bit where there is no residual; left = 0 where that is
// wanted.
void split(const Addends& x, bool planes, std::byte* bytes) {
  for (std::uint64_t i = 0; i < x.count; ++i) {
    std::uint32_t bits = 0;
    if (x.residual != nullptr) {
      bits = bit_cast<std::uint32_t>(sum_at(x, i));
    } else {
      // As an integer: a float on its way through a register may lose a NaN's bits.
      std::memcpy(&bits, x.in + i, sizeof bits);
    }
    for (unsigned p = 0; p < kPlanes; ++p) {
      bytes[place_of(i, p, x.count, planes)] = static_cast<std::byte>(bits >> 8 * p & 0xFF);
    }
    if (x.left != nullptr) x.left[i] = 0.0F;
  }
}

// slot = scale * value; with scale 1 the value's bits as they are.
void join_overwrite(const std::byte* bytes, std::uint64_t count, bool planes, float scale, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = joined_bits(bytes, i, count, planes);
    if (scale == 1.0F) {
      std::memcpy(slot + i, &bits, sizeof bits);
    } else {
      slot[i] = scale * bit_cast<float>(bits);
    }
  }
}

// slot = slot + scale * value, two roundings.
void join_accumulate(const std::byte* bytes, std::uint64_t count, bool planes, float scale, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) {
    slot[i] += scale * bit_cast<float>(joined_bits(bytes, i, count, planes));
  }
}

class PlaneCodec final : public Codec {
 public:
  PlaneCodec(const Compressor& compressor, int level, bool planes) noexcept
      : Codec(compressor.info),
        compressor_(compressor),
        level_(level),
        planes_(planes),
        compress_scratch_(compressor.compress_scratch(level)) {}

  std::string spec() const override {
    return std::string(info().name) + ":level=" + std::to_string(level_) +
           ",planes=" + std::string(kPlaneSwitch[planes_ ? 0 : 1]);
  }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    const std::uint64_t chunks = ceil_div(part.count, kChunkElements);
    const std::uint64_t scratch = part.count > 0 ? raw_room(part.count) + compress_scratch_ : 0;
    return Sizes{.payload_bytes = sum_or_max(product_or_max(part.count, sizeof(float)), chunks),
                 .chunks = chunks_or_max(chunks),
                 .scratch_bytes = scratch};
  }

  std::uint64_t do_decode_scratch(std::uint64_t count) const noexcept override {
    return count > 0 ? raw_room(count) + compressor_.decompress_scratch() : 0;
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const Addends x{part.in, part.residual, part.left, part.count};
    std::uint64_t written = 0;
    std::uint32_t chunks = 0;
    for (std::uint64_t at = 0; at < part.count; at += kChunkElements) {
      const Addends chunk = some_of(x, at, std::min(part.count - at, kChunkElements));
      const MutBytes room = out.payload.subspan(written, 1 + chunk.count * sizeof(float));
      written += encode_chunk(chunk, room, exec.scratch);
      out.chunk_ends[chunks++] = static_cast<std::uint32_t>(written);
    }
    return EncodedPart{.payload_bytes = written, .chunks = chunks};
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec& exec) const override {
    const auto join = out.accumulate ? join_accumulate : join_overwrite;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const std::uint32_t count = elements_of_chunk(out.count, i, kChunkElements);
      const std::byte* bytes = nullptr;
      const Fault fault =
          bytes_of(chunk_of(in, i), exec.scratch.first(count * sizeof(float)),
                   exec.scratch.subspan(raw_room(out.count), compressor_.decompress_scratch()), bytes);
      RETURN_IF_ERROR(fault_status(info().name, i, fault));
      join(bytes, count, planes_, out.scale, out.slot + i * kChunkElements);
    }
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    std::vector<std::byte> memory(do_decode_scratch(count));
    const MutBytes scratch(memory);
    std::uint64_t bits_of_mode[2] = {};
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const std::uint64_t bytes = elements_of_chunk(count, i, kChunkElements) * sizeof(float);
      const ChunkBytes chunk = chunk_of(in, i);
      const std::byte* at = nullptr;
      const Fault fault = bytes_of(chunk, scratch.first(bytes), scratch.subspan(raw_room(count)), at);
      RETURN_IF_ERROR(fault_status(info().name, i, fault));
      bits_of_mode[chunk.at[0] == kCompressed ? 1 : 0] += (std::uint64_t{chunk.bytes} - 1) * 8;
    }
    add_section(sections, "modes", in.chunk_ends.size() * 8);
    add_section(sections, "stored bytes", bits_of_mode[0]);
    add_section(sections, "compressed bytes", bits_of_mode[1]);
    return {};
  }

  // `out` has room for the chunk as it is. Returns the bytes written.
  std::uint64_t encode_chunk(const Addends& x, MutBytes out, MutBytes scratch) const noexcept {
    assert(scratch.size() >= raw_room(x.count) + compress_scratch_ && out.size() > x.count * sizeof(float));
    const MutBytes raw = scratch.first(x.count * sizeof(float));
    split(x, planes_, raw.data());
    const std::uint64_t bytes = compressor_.compress(level_, raw, out.subspan(1, raw.size() - 1),
                                                     scratch.subspan(raw_room(x.count), compress_scratch_));
    out[0] = bytes > 0 ? kCompressed : kStored;
    if (bytes > 0) return 1 + bytes;
    std::memcpy(out.data() + 1, raw.data(), raw.size());
    return 1 + raw.size();
  }

  // The bytes of a chunk's values: in `raw`, or where the chunk has stored them.
  Fault bytes_of(const ChunkBytes& chunk, MutBytes raw, MutBytes scratch,
                 const std::byte*& bytes) const noexcept {
    const Bytes in{chunk.at + 1, chunk.bytes - 1};
    if (chunk.at[0] == kStored) {
      bytes = in.data();
      if (in.size() < raw.size()) return &faults::kTruncated;
      return in.size() > raw.size() ? &faults::kLength : nullptr;
    }
    if (chunk.at[0] != kCompressed) return &faults::kMode;
    if (in.size() >= raw.size()) return &faults::kLength;
    bytes = raw.data();
    return compressor_.decompress(in, raw, scratch);
  }

  const Compressor& compressor_;
  int level_;
  bool planes_;
  std::uint64_t compress_scratch_;
};

}  // namespace

Result<std::unique_ptr<const Codec>> make_plane_codec(const Compressor& compressor, const ParsedSpec& spec) {
  ASSIGN_OR_RETURN(const auto level,
                   choice_parameter(spec, "level", compressor.levels,
                                    static_cast<std::size_t>(compressor.default_level - 1)));
  ASSIGN_OR_RETURN(const auto planes, choice_parameter(spec, "planes", kPlaneSwitch, 0));
  return std::make_unique<const PlaneCodec>(compressor, static_cast<int>(level) + 1, planes == 0);
}

}  // namespace deltawire::planes
