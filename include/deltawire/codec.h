// Codecs: the lossy or lossless coding of one part (a named tensor, or a slice of it) to bytes.
//
// A codec is immutable and stateless: its parameters are fixed when it is made from a spec string, every
// member is const and may be called from any number of threads. The Channel keeps what a step leaves behind
// (the residual); frame.h defines the frame around the bytes (header, checksums).
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "deltawire/workers.h"

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
  std::string_view default_value;  // as written in a canonical spec
  std::string_view meaning;
};

inline constexpr DType kAllDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

struct CodecInfo {
  std::uint16_t id = 0;      // on the wire; pinned once released
  std::string_view name;     // in spec strings
  std::string_view summary;  // one line for `deltawire codecs`
  std::string_view source;   // paper, section, equation
  std::span<const ParameterInfo> parameters = {};
  std::span<const std::string_view> examples =
      {};                            // specs besides the bare name, one for each choice that changes
                                     // what is coded: every test of all codecs runs over them
  std::string_view default_pattern;  // the reducer used when a spec names none: "direct"
  std::span<const DType> dtypes = kAllDTypes;  // that it accepts; 16-bit values are widened to fp32 in
                                               // scratch before it sees them, residuals are always fp32
  bool lossless = false;                       // decode restores the input's bits
  bool error_feedback = false;                 // a Channel keeps a residual for it from the first step on
  bool late = false;         // most of a gradient waits in the residual for later steps, where an optimizer's
                             // momentum would multiply or delay it
  bool finite_only = false;  // NaN and Inf are kNotFinite; otherwise they are sent
  bool sparse = false;       // sends few elements: decode accumulates only those, and the momentum of sent
                             // elements can be masked
  bool key_value = false;    // supports the key-value form, in and out
  bool significance = false;  // reads TensorView::significance, if given, to save more
  bool half_form = false;  // its parameter `values` makes it a codec for tensors of 16 bits: a Channel uses
                           // that one for them (make_half_form), in frames of half_form_version()
  bool bytes_follow_library = false;  // its bytes depend on the installed version of a library; every
                                      // version decodes them to the same values
  std::uint8_t scalars = 0;           // 0 to 2: numbers for a whole part, sent along with the chunks
  std::uint64_t chunk_elements = 0;   // elements per chunk, so that a part can be cut between frames at
                                      // multiples of it; 0: chunks depend on the data, never cut
  bool at_copy_speed = false;    // encodes about as fast as memory is copied: a second thread spares nothing
  bool separate_chunks = false;  // without a residual a chunk's bytes depend on its float32 elements alone,
                                 // any of which it carries: a part may be encoded chunk by chunk

  // Several threads can decode one part, as its chunks are known beforehand.
  constexpr bool shares_parts() const noexcept { return chunk_elements > 0; }
};

// Upper bounds for one part, from its count, dtype and dims alone, without headers.
struct Sizes {
  std::uint64_t payload_bytes = 0;
  std::uint32_t chunks = 0;
  std::uint64_t scratch_bytes = 0;  // 0: none needed
};

// Where encode writes one part, independent of every other part's; each span at least as large as sizes()
// says.
struct PartBuffer {
  MutBytes payload;
  std::span<std::uint32_t> chunk_ends;  // chunk i is payload[chunk_ends[i-1], chunk_ends[i])
  // Where the chunks' checksums go (CRC-32C, as many as chunk_ends), if the codec computes them while the
  // chunks are in the cache: EncodedPart::has_sums. Empty: not wanted.
  std::span<std::uint32_t> chunk_sums = {};
};

inline constexpr std::size_t kScratchAlignment = 16;

// What a call may use besides its arguments. Concurrent calls each need their own scratch, and a set of
// Workers may serve only one of them.
struct Exec {
  // Selects the random numbers of a stochastic codec: number i is a pure function of (stream, i)
  // (base/random.h), so any thread, device or restart draws the same. Each call needs its own stream: a
  // Channel derives it from seed, step, rank and part. Other codecs ignore it.
  std::uint64_t stream = 0;
  MutBytes scratch = {};       // aligned to kScratchAlignment; content meaningless before and after
  Workers* workers = nullptr;  // null: the calling thread alone
};

// What encode wrote.
struct EncodedPart {
  std::uint64_t payload_bytes = 0;  // == chunk_ends[chunks - 1], or 0 without chunks
  std::uint32_t chunks = 0;
  std::uint32_t scalar = 0;   // the codec's numbers for the whole part (3LC: bits of m); unused ones
  std::uint32_t scalar2 = 0;  // (CodecInfo::scalars) are 0
  bool has_sums = false;      // PartBuffer::chunk_sums was filled
};

// What decode reads: bytes from anywhere, hostile ones included.
struct PartView {
  Bytes payload;
  std::span<const std::uint32_t> chunk_ends;
  std::uint32_t scalar = 0;
  std::uint32_t scalar2 = 0;
};

// How many bits of an encoded part serve a purpose, for `deltawire inspect`.
struct Section {
  std::string_view name;
  std::uint64_t bits = 0;
};

// Error feedback of a part: what earlier encodings did not send, and where this one leaves what it doesn't
// send. Both have a value for each element, or both are empty: no error feedback. They are the same memory,
// or disjoint. Disjoint memory costs a codec nothing, and spares a finite-only codec from checking all values
// before it changes the first.
struct Residual {
  Residual() noexcept = default;
  template <std::convertible_to<std::span<float>> Values>
  Residual(Values&& in_place) noexcept : before(in_place), after(in_place) {}  // NOLINT: as a span
  Residual(std::span<const float> from, std::span<float> to) noexcept : before(from), after(to) {}

  bool in_place() const noexcept { return before.data() == after.data(); }

  std::span<const float> before;
  std::span<float> after;
};

// The input of do_encode: checked, and fp32.
struct PartSource {
  const float* in = nullptr;
  const float* residual = nullptr;  // null: nothing to add
  float* left = nullptr;    // where the new residual goes: `residual`, or memory disjoint from both, or
                            // `in`, which is the sum then; null: no error feedback
  std::uint64_t count = 0;  // of all three
  TensorView view;          // keys, dims, significance: the rest of what the caller gave
};

// Where a codec decodes to: slot[i] = scale * value, or slot[i] += scale * value (Into::kAccumulate).
struct PartTarget {
  float* slot = nullptr;
  std::uint64_t count = 0;
  float scale = 1;
  bool accumulate = false;
};

// The public calls do the checks that all codecs share, and set the floating-point mode
// (base/float_environment.h); the private ones below only encode and decode.
class DELTAWIRE_API Codec {
 public:
  virtual ~Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  // As registered, except for flags that parameters change (a residual turned on, a lossless variant).
  const CodecInfo& info() const noexcept { return info_; }

  // Canonical spec: "3lc:s=1.75,mode=auto,runs=on", every parameter spelled out, except those that a later
  // release added and that have their default. Codecs with equal specs give equal bytes for equal input and
  // Exec::stream, on every machine; with info().bytes_follow_library only the decoded values are the same
  // everywhere.
  virtual std::string spec() const = 0;

  // The canonical spec of the codec that a pattern codes means with, which their owners send back: its own,
  // unless a parameter says otherwise (3lc's `pull`). Its bytes are this codec's to decode, too.
  virtual std::string mean_spec() const { return spec(); }

  // An upper bound of the factor by which each encoding and decoding multiplies a part when this is repeated
  // with new input added each time, as on the hops of a ring. It bounds the largest magnitude or, for
  // stochastic codecs, the root of the expected mean square. It includes what error feedback adds in the long
  // run, if the input does not grow from step to step, but not rounding to a nearby value. It depends on the
  // parameters alone: 1 for most codecs, infinite if a value's magnitude may change arbitrarily.
  virtual double gain() const noexcept { return 1; }

  // Bounds for a part of `part.count` values (of `part.dimension` elements in key-value form); neither values
  // nor keys are read. A dense part's bounds hold for any values.
  Sizes sizes(const TensorView& part) const noexcept;

  // Encodes part + residual.before and leaves in residual.after what was not sent (error feedback fused into
  // the encoding). `residual` is empty (no error feedback) or has part.count values; with the key-value form
  // it must be empty. A part has the same bytes in both forms; 16-bit values have the bytes of the same
  // values in float32. Errors: kUnsupportedDType, kOutputTooSmall (`out` or exec.scratch), kInvalidArgument
  // (a residual with another count; dims that don't multiply to the elements; scratch that isn't aligned;
  // keys where info().key_value is false, out of order or out of range), kLimit (chunk ends beyond 32 bits),
  // kNotFinite (message names the element), kRange; on an error residual.before is untouched, and a disjoint
  // residual.after and `out` are unspecified. Allocates nothing on success.
  Result<EncodedPart> encode(const TensorView& part, Residual residual, const PartBuffer& out,
                             const Exec& exec) const;

  // Decodes into `out`, dense, whose count and dtype are the receiver's expectation. A total function of
  // `in`: any bytes give values, or kTruncated or kCorrupt. Reads only inside in.payload, writes only inside
  // the slot and exec.scratch, allocates nothing on success; on error the slot is unspecified. Values for a
  // 16-bit slot are decoded in fp32, in scratch, and rounded to nearest even. exec.scratch has
  // decode_scratch(out) bytes; for a float32 slot that is no more than sizes() says for encoding it.
  // Errors of the slot: kUnsupportedDType (also: accumulating in 16 bits, which would lose what is added),
  // kInvalidArgument (keys), kOutputTooSmall (scratch), kRange (a finite value beyond what the dtype holds).
  Status decode(const PartView& in, const TensorSlot& out, Into into, float scale,
                const Exec& exec = {}) const;
  std::uint64_t decode_scratch(const TensorSlot& out) const noexcept;

  // Decodes into key-value form: out.dimension is the receiver's expectation, out.count the capacity of both
  // out.values (float32) and out.keys; returns the pairs written. Where a part was cut into segments, keys
  // count from the segment's beginning. Errors: as decode; kOutputTooSmall when there are more pairs (a
  // capacity of out.dimension is always enough); kInvalidArgument where info().key_value is false.
  Result<std::uint64_t> decode_pairs(const PartView& in, const TensorSlot& out, float scale,
                                     const Exec& exec = {}) const;

  // Adds the bits of the part's sections to `sections` (same name: summed). Same errors as decode.
  Status describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const;

 protected:
  // `info` lives as long as the program.
  explicit Codec(const CodecInfo& info) noexcept : info_(info) {}

  // For do_encode: an element is NaN or Inf. encode() finds and names it.
  static tl::unexpected<Error> not_finite();

 private:
  virtual Sizes do_sizes(const TensorView& part) const noexcept = 0;

  // With finite_only: looks for NaN and Inf before it changes the residual, if that is in place.
  virtual Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                        const Exec& exec) const = 0;

  // `in` has as many chunks as the part needs (at least one, if chunks depend on the data), their ends grow
  // strictly and the last is the payload's; unused scalars, and those of an empty part, are 0.
  virtual Status do_decode(const PartView& in, const PartTarget& out, const Exec& exec) const = 0;
  virtual Status do_describe(const PartView& in, std::uint64_t count,
                             std::vector<Section>& sections) const = 0;

  // What do_decode needs for `count` float32 values.
  virtual std::uint64_t do_decode_scratch(std::uint64_t count) const noexcept;

  // REQUIRES of the caller: info().key_value.
  virtual Result<std::uint64_t> do_decode_pairs(const PartView& in, const TensorSlot& out, float scale) const;

  const CodecInfo& info_;
};

// Makes a codec from "name" or "name:key=value,key=value". Errors: kUnknownCodec (lists the known ones),
// kInvalidArgument (unknown parameter, value out of range; the message says the range), and those of
// kernel_target_in_use().
DELTAWIRE_API Result<std::unique_ptr<const Codec>> make_codec(std::string_view spec);

// The form of a codec for tensors of a 16-bit dtype. REQUIRES: info().half_form.
DELTAWIRE_API Result<std::unique_ptr<const Codec>> make_half_form(const Codec& codec, DType dtype);

// All codecs, ordered by id. The spans live as long as the program.
DELTAWIRE_API std::span<const CodecInfo* const> registered_codecs() noexcept;

// An instruction set that the codecs' inner loops are compiled for. All give the same bytes, residuals and
// values.
struct KernelTarget {
  std::string_view name;   // "reference": what every machine of this architecture has
  bool runs_here = false;  // this CPU has it
};

// The targets of this build, the reference first. The span lives as long as the program.
DELTAWIRE_API std::span<const KernelTarget> kernel_targets() noexcept;

// The name of the target that make_codec's codecs use, decided once per process, at the first call of either:
// the one that the environment variable DELTAWIRE_FORCE_TARGET names, or else the best that runs here.
// Errors: kInvalidArgument if the named target does not run here (lists those that do).
DELTAWIRE_API Result<std::string_view> kernel_target_in_use();

}  // namespace deltawire
