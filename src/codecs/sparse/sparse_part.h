// Parts of sparse codecs: chunks of positions, and of their values (src/codecs/topk/spec.md, sections 1 to
// 3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codecs/sparse/sparse_ops.h"
#include "codecs/spec_string.h"
#include "deltawire/codec.h"

namespace deltawire::sparse {

// Values in 2 bits: each goes into one of four bins, and stands for the mean of its bin
// (src/codecs/topk/spec.md, section 3).
//
// REQUIRES of all that compute: the calling thread in a FloatEnvironment.

inline constexpr unsigned kBinCount = 4;
inline constexpr unsigned kBinCodeBits = 2;
inline constexpr std::uint32_t kMeansBytes = kBinCount * sizeof(float);

struct Bins {
  float means[kBinCount] = {};
  bool of_one_each = false;  // the values are the means, in this order
  double center = 0;         // the mean of all values
  double deviation = 0;      // their standard deviation
};

constexpr std::uint32_t bin_code_bytes(std::uint32_t count) noexcept {
  return (count + 3) / 4;
}

// REQUIRES: finite values.
Bins bins_of(std::span<const float> values) noexcept;

// Writes the codes, bin_code_bytes() in all, and puts in the values' place what decoders get.
void encode_bins(std::span<float> values, const Bins& bins, std::byte* out) noexcept;

// Whether bits that aren't 0 follow the last code.
bool has_bin_padding(const std::byte* codes, std::uint32_t count) noexcept;

void decode_bins(const std::byte* codes, const Bins& bins, std::span<float> values) noexcept;

void store_means(const Bins& bins, std::byte* out) noexcept;

// Reads the means; false if one isn't finite.
bool load_means(const std::byte* at, Bins& bins) noexcept;

// Bytes that the chunks of `kept` positions among `count` can take, however they are coded, without values.
std::uint64_t positions_bound(std::uint64_t kept, std::uint64_t count) noexcept;

// The same where it isn't known how many of `count` are kept.
std::uint64_t any_positions_bound(std::uint64_t count) noexcept;

// An error for a part that has more elements than 32 bits can count.
Status check_count(std::string_view codec, std::uint64_t count);

// The parameter `positions`: how they are coded.
inline constexpr ParameterInfo kPositionsParameter = {
    "positions", "golomb or auto", "golomb",
    "code of the positions: that of the paper of sbc, or of each chunk the shorter of two"};
Result<PositionCode> positions_parameter(const ParsedSpec& spec);
std::string_view name_of(PositionCode code) noexcept;

// Writes a chunk of positions; returns its bytes. REQUIRES: as Kernels::encode_chunk.
std::uint32_t write_positions(const Kernels& kernels, PositionCode code,
                              std::span<const std::uint32_t> positions, MutBytes out);

// The parameter `values`: how they are coded.
inline constexpr ParameterInfo kValuesParameter = {"values", "fp32, bf16 or int8", "fp32",
                                                   "code of the values that are sent"};
Result<ValueFormat> values_parameter(const ParsedSpec& spec);

// The same with values=2bit, for codecs that know all values before they code the first.
inline constexpr ParameterInfo kValuesOrBinsParameter = {kValuesParameter.name, "fp32, bf16, int8 or 2bit",
                                                         kValuesParameter.default_value,
                                                         kValuesParameter.meaning};
std::string_view name_of(ValueFormat format) noexcept;

// An error unless `step` is the scalar that goes with values of this format: 0 except for int8.
Status check_step(std::string_view codec, ValueFormat format, std::uint32_t step);

// The code for values of which `largest` has the largest magnitude. REQUIRES: finite; not kBins.
ValueCode code_for(ValueFormat format, std::uint32_t largest) noexcept;

// How a part's values are coded: `bins` of ValueFormat::kBins, `plain` of all others.
struct PartCode {
  ValueCode plain;
  Bins bins = {};
};

// Elements that are coded: the values are replaced by what decoders get.
struct SentElements {
  const std::uint32_t* positions = nullptr;
  float* values = nullptr;
  std::uint64_t count = 0;
};

// Codes and decodes the parts of one codec. Lives shorter than the kernels.
class PartCoder {
 public:
  PartCoder(std::string_view codec, PositionCode positions, ValueFormat values,
            const Kernels& kernels) noexcept
      : codec_(codec), positions_(positions), values_(values), kernels_(kernels) {}

  ValueFormat values() const noexcept { return values_; }
  const Kernels& kernels() const noexcept { return kernels_; }

  // ",values=fp32,positions=golomb"
  std::string spec() const {
    return ",values=" + std::string(name_of(values_)) + ",positions=" + std::string(name_of(positions_));
  }

  // Room for a part of `elements`, `kept` of which are sent.
  Sizes sizes(std::uint64_t kept, std::uint64_t elements) const noexcept;
  // The same where it isn't known how many.
  Sizes sizes_of_any(std::uint64_t elements) const noexcept;

  // Appends a chunk to what is in `out` so far. REQUIRES: kChunkPositions of them, but for the last chunk.
  void append(const SentElements& sent, const PartCode& code, const PartBuffer& out, EncodedPart& part) const;

  Status decode(const PartView& in, const PartTarget& out) const;
  Result<std::uint64_t> decode_pairs(const PartView& in, const TensorSlot& out, float scale) const;
  Status describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const;

 private:
  struct DecodedChunk;
  template <class Visit>
  Status decode_chunks(const PartView& in, std::uint64_t elements, Visit visit) const;
  Status decode_chunk(const ChunkBytes& bytes, std::size_t number, std::uint64_t elements,
                      DecodedChunk& chunk) const;
  Status check_values(std::size_t number, const DecodedChunk& chunk) const;
  void decode_values(const DecodedChunk& chunk, float* values) const noexcept;

  std::string_view codec_;
  PositionCode positions_;
  ValueFormat values_;
  const Kernels& kernels_;
};

// A codec whose parts are a PartCoder's.
class PartCodec : public Codec {
 protected:
  PartCodec(const CodecInfo& info, const PartCoder& coder) noexcept : Codec(info), coder_(coder) {}

  const PartCoder& coder() const noexcept { return coder_; }

 private:
  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const final {
    return coder_.decode(in, out);
  }
  Result<std::uint64_t> do_decode_pairs(const PartView& in, const TensorSlot& out, float scale) const final {
    return coder_.decode_pairs(in, out, scale);
  }
  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const final {
    return coder_.describe(in, count, sections);
  }

  PartCoder coder_;
};

// The coder of the codec `codec`, a name that lives as long as the program, with `values` and `positions` of
// the spec; of values those that part_coder() takes, or values=2bit, too. Errors: kInvalidArgument.
Result<PartCoder> part_coder(std::string_view codec, const ParsedSpec& spec, TargetId target);
Result<PartCoder> part_coder_with_bins(std::string_view codec, const ParsedSpec& spec, TargetId target);

// Completes the new residual of the elements from `begin` to `end`, where there is one: x, less what was
// sent. REQUIRES: x is there already, where it lies apart from the old one.
void leave_unsent(const Kernels& kernels, const PartSource& part, const Elements& sent, std::uint64_t begin,
                  std::uint64_t end);

}  // namespace deltawire::sparse
