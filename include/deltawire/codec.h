// Codecs: the lossy or lossless coding of one part (a named tensor, or a slice of it) to bytes.
//
// A codec is immutable and stateless: its parameters are fixed when it is made from a spec string, every
// member is const and may be called from any number of threads. What a step leaves behind (the residual)
// is the Channel's; the frame around the bytes (header, checksums) is frame.h's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

// What decode does with the values already in the slot.
enum class Into : std::uint8_t {
  kOverwrite,   // slot = scale * value
  kAccumulate,  // slot = slot + scale * value: scale first, then add, two roundings. A decoded zero of a
                // sparse codec leaves the slot's bits as they are (-0 stays -0).
};

struct ParameterInfo {
  std::string_view name;
  std::string_view range;          // in words, e.g. "1 <= s < 2"
  std::string_view default_value;  // as it stands in a canonical spec
  std::string_view meaning;
};

struct CodecInfo {
  std::uint16_t id = 0;      // on the wire; pinned once released
  std::string_view name;     // in spec strings
  std::string_view summary;  // one line for `deltawire codecs`
  std::string_view source;   // paper, section, equation
  std::span<const ParameterInfo> parameters;
  std::string_view default_pattern;  // the reducer used when a spec names none: "direct"
  bool lossless = false;             // decode gives the input's bits back
  bool error_feedback = false;       // a Channel keeps a residual for it from the first step on
  bool finite_only = false;          // NaN and Inf are kNotFinite; otherwise they are carried
  bool sparse = false;               // sends few elements: decode accumulates them only, momentum of what was
                                     // sent can be masked
  bool key_value = false;            // takes and gives the key-value form
  bool significance = false;         // reads TensorView::significance and saves more where it is given
  std::uint8_t scalars = 0;          // 0 to 2: numbers for a whole part that travel beside the chunks
  std::uint64_t chunk_elements = 0;  // a chunk covers this many elements, so a part can be cut between
                                     // frames at its multiples; 0: chunks follow the data, never cut
};

// Upper bounds for one part, from its count and dtype alone: no header, no input value is read.
struct Sizes {
  std::uint64_t payload_bytes = 0;
  std::uint32_t chunks = 0;
  std::uint64_t scratch_bytes = 0;  // 0: none needed
};

// Where encode writes; every span at least as large as sizes() says.
struct PartBuffer {
  MutBytes payload;
  std::span<std::uint32_t> chunk_ends;  // chunk i is payload[chunk_ends[i-1], chunk_ends[i])
  MutBytes scratch;                     // content meaningless before and after
};

// What encode wrote.
struct EncodedPart {
  std::uint64_t payload_bytes = 0;  // == chunk_ends[chunks - 1], or 0 without chunks
  std::uint32_t chunks = 0;
  std::uint32_t scalar = 0;   // the codec's numbers for the whole part (3LC: bits of m); those that it has
  std::uint32_t scalar2 = 0;  // not (CodecInfo::scalars) are 0
};

// What decode reads: bytes from anywhere, hostile ones included.
struct PartView {
  Bytes payload;
  std::span<const std::uint32_t> chunk_ends;
  std::uint32_t scalar = 0;
  std::uint32_t scalar2 = 0;  // whoever reads messages refuses one that the codec has not
};

// A named share of an encoded part, for `deltawire inspect`.
struct Section {
  std::string_view name;
  std::uint64_t bits = 0;
};

class Codec {
 public:
  virtual ~Codec() = default;

  // As registered, except for flags that parameters change (a residual turned on, a lossless variant).
  virtual const CodecInfo& info() const noexcept = 0;

  // Canonical spec with every parameter spelled out, e.g. "3lc:s=1.75,mode=auto,runs=on". Two codecs with
  // equal canonical specs give equal bytes for equal input, on every machine.
  virtual std::string spec() const = 0;

  // Bounds for a part of `part.count` values (of `part.dimension` elements in key-value form); neither values
  // nor keys are read. The bounds of a dense part hold for every message of that many elements.
  virtual Sizes sizes(const TensorView& part) const noexcept = 0;

  // Encodes part + residual and leaves in `residual` what was not sent (error feedback fused into the
  // encoding). `residual` is empty (no error feedback) or has part.count values; with the key-value form it
  // must be empty. A part has the same bytes in both forms.
  // Errors: kUnsupportedDType, kOutputTooSmall, kInvalidArgument (a residual of another count;
  // keys where info().key_value is false, out of order or out of range), kLimit (chunk
  // ends beyond 32 bits), kNotFinite (message names the element), kRange; then `residual` is untouched and
  // `out` unspecified. Allocates nothing on success.
  virtual Result<EncodedPart> encode(const TensorView& part, std::span<float> residual,
                                     const PartBuffer& out) const = 0;

  // Decodes into `out`, dense, whose count and dtype are the receiver's expectation. A total function of
  // `in`: any bytes give a value or kTruncated, kCorrupt, kUnsupportedDType. On error the slot is
  // unspecified. Reads only inside in.payload, writes only inside the slot, allocates nothing on success.
  virtual Status decode(const PartView& in, const TensorSlot& out, Into into, float scale) const = 0;

  // Decodes into key-value form: out.dimension is the receiver's expectation, out.count the capacity of both
  // out.values and out.keys; returns the pairs written. Where a part was cut into segments, keys count from
  // the segment's beginning. Errors: as decode; kOutputTooSmall when there are more pairs (a capacity of
  // out.dimension is always enough); kInvalidArgument where info().key_value is false.
  virtual Result<std::uint64_t> decode_pairs(const PartView& in, const TensorSlot& out, float scale) const;

  // Adds the bits of the part's sections to `sections` (same name: summed). Same errors as decode.
  virtual Status describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const = 0;
};

// Makes a codec from "name" or "name:key=value,key=value". Errors: kUnknownCodec (lists the known ones),
// kInvalidArgument (unknown parameter, value out of range; the message says the range).
Result<std::unique_ptr<const Codec>> make_codec(std::string_view spec);

// All codecs, in the order of their ids. The spans live as long as the program.
std::span<const CodecInfo* const> registered_codecs() noexcept;

}  // namespace deltawire
