// The codecs that give the bytes of values to a general compressor: all but the compressor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codecs/kernels/chunk_bytes.h"
#include "codecs/planes/planes_ops.h"
#include "codecs/spec_string.h"
#include "deltawire/codec.h"

namespace deltawire::planes {

inline constexpr std::string_view kPlaneSwitch[] = {"on", "off"};

struct PlaneParameters {
  int level = 0;
  bool planes = true;
};

// The parameter `planes`; `level` is each library's own.
inline constexpr ParameterInfo kPlanesParameter = {"planes", "on or off", "on",
                                                   "on: bytes of equal significance lie together"};

// Reads `level`, one of `levels`, which begin with 1, and `planes`. Errors: kInvalidArgument.
Result<PlaneParameters> plane_parameters(const ParsedSpec& spec, std::span<const std::string_view> levels,
                                         int default_level);

// A chunk is a byte that names its mode, and behind it the bytes of its values (planes_ops.h) as they are,
// or compressed where that is shorter.
class PlaneCodec : public Codec {
 public:
  static constexpr std::uint64_t kChunkElements = 65536;
  static constexpr std::uint64_t kChunkValueBytes = kChunkElements * sizeof(float);

  std::string spec() const final;

 protected:
  enum class Fault : std::uint8_t {
    kNone,
    kTruncated,
    kMode,      // the first byte names none
    kLength,    // stored bytes: more than the values have; compressed ones: as many, or more
    kHeader,    // the compressed stream's header is no valid one
    kSize,      // it says that it holds another number of bytes
    kStream,    // the library can't decompress it
    kTrailing,  // bytes behind its end
  };

  PlaneCodec(const CodecInfo& info, const PlaneParameters& parameters, const Kernels& kernels) noexcept
      : Codec(info), parameters_(parameters), kernels_(kernels) {}

  int level() const noexcept { return parameters_.level; }

 private:
  // Memory that the library takes for a chunk of `bytes`, at most kChunkValueBytes; aligned to
  // kScratchAlignment.
  virtual std::uint64_t compress_scratch() const noexcept = 0;
  virtual std::uint64_t decompress_scratch() const noexcept = 0;

  // Writes all of `in` compressed and returns the bytes written; 0 where there is no room for them.
  virtual std::uint64_t compress(Bytes in, MutBytes out, MutBytes scratch) const noexcept = 0;

  // Fills `out` with what all of `in` is decompressed to. None where it is one stream of so many bytes.
  virtual Fault decompress(Bytes in, MutBytes out, MutBytes scratch) const noexcept = 0;

  Sizes do_sizes(const TensorView& part) const noexcept final;
  std::uint64_t do_decode_scratch(std::uint64_t count) const noexcept final;
  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out, const Exec& exec) const final;
  Status do_decode(const PartView& in, const PartTarget& out, const Exec& exec) const final;
  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const final;

  std::uint64_t encode_chunk(const Addends& x, MutBytes out, MutBytes scratch) const noexcept;
  // The bytes of a chunk's values: in `raw`, or where the chunk has stored them.
  Fault bytes_of(const ChunkBytes& chunk, MutBytes raw, MutBytes scratch,
                 const std::byte*& bytes) const noexcept;
  Status error_of(Fault fault, std::size_t chunk) const;

  PlaneParameters parameters_;
  const Kernels& kernels_;
};

}  // namespace deltawire::planes
