// sbc: sparse binary compression, after F. Sattler, S. Wiedemann, K.-R. Mueller, W. Samek, "Sparse Binary
// Compression: Towards Distributed Deep Learning with minimal Communication" (IJCNN 2019), algorithms 2 to 4:
// the largest values of one sign, sent as their positions and one mean. spec.md in this folder defines the
// bytes.

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <optional>

#include "base/checked.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/sparse/sparse_ops.h"
#include "codecs/sparse/sparse_part.h"
#include "codecs/spec_string.h"

namespace deltawire::sbc {

namespace {

using sparse::candidate_room;
using sparse::Candidates;
using sparse::ChunkContent;
using sparse::DecodeTarget;
using sparse::kChunkPositions;
using sparse::Kernels;
using sparse::kMaxElements;
using sparse::PositionCode;

constexpr ParameterInfo kParameters[] = {
    {"p", "0.000001 <= p < 1, or in percent", "0.01", "share of the elements that is sent at most"},
    sparse::kPositionsParameter,
    {"pull", "p, or 0.000001 <= pull < 1, or in percent", "p", "the p of means, which owners send back"},
};

constexpr std::string_view kExamples[] = {"sbc:p=0.001", "sbc:p=0.5", "sbc:p=0.1,positions=auto"};

constexpr CodecInfo kInfo = {
    .id = 4,
    .name = "sbc",
    .summary = "the largest values of one sign as positions and one mean, with error feedback: 390x at p=1%",
    .source = "Sattler, Wiedemann, Mueller, Samek: Sparse Binary Compression (IJCNN 2019), algorithms 2-4",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "gather",
    .error_feedback = true,
    .late = true,
    .finite_only = true,
    .sparse = true,
    .scalars = 1,
};

// Candidates of both signs, and the kernels' spare numbers, laid out in an encoder's scratch.
struct Selection {
  Candidates positive;
  Candidates negative;
  std::uint32_t* spare = nullptr;
};

std::uint64_t scratch_bytes(std::uint64_t room) noexcept {
  return 5 * room * sizeof(std::uint32_t);
}

Selection lay_out(MutBytes scratch, std::uint64_t room) noexcept {
  assert(scratch.size() >= scratch_bytes(room));
  auto* at = reinterpret_cast<std::uint32_t*>(scratch.data());
  return {{at, at + room, 0}, {at + 2 * room, at + 3 * room, 0}, at + 4 * room};
}

// What is sent: the same value, the signed mean, at all positions.
struct Update {
  Candidates kept;
  float mean = 0;
};

class Sbc final : public Codec {
 public:
  Sbc(float p, std::optional<float> pull, PositionCode positions, const Kernels& kernels) noexcept
      : Codec(kInfo), p_(p), pull_(pull), positions_(positions), kernels_(kernels) {}

  // `positions` and `pull` came later: specs that don't name them keep their hash.
  std::string spec() const override {
    return pull_ ? spec_with(p_) + ",pull=" + canonical_number(*pull_) : spec_with(p_);
  }

  std::string mean_spec() const override { return spec_with(pull_.value_or(p_)); }

  Sizes do_sizes(const TensorView& part) const noexcept override {
    if (part.count == 0) return {};
    if (part.count > kMaxElements) return {.payload_bytes = std::numeric_limits<std::uint64_t>::max()};
    const std::uint64_t kept = kept_of(p_, part.count);
    return Sizes{.payload_bytes = sparse::positions_bound(kept, part.count),
                 .chunks = static_cast<std::uint32_t>(ceil_div(kept, kChunkPositions)),
                 .scratch_bytes = scratch_bytes(candidate_room(part.count, kept))};
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    ASSIGN_OR_RETURN(const auto update, choose(part, exec.scratch));
    if (part.left != nullptr) keep_unsent(part, update);
    return encode_chunks(update, out);
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    RETURN_IF_ERROR(check_part(in, out.count));
    const DecodeTarget target{.slot = out.slot,
                              .count = out.count,
                              .value = FloatEnvironment::pinned(std::bit_cast<float>(in.scalar)) * out.scale,
                              .accumulate = out.accumulate};
    if (!target.accumulate) std::fill_n(target.slot, target.count, 0.0F);
    return decode_chunks(in, target, [](const ChunkContent&, std::uint32_t) {});
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    RETURN_IF_ERROR(check_part(in, count));
    std::uint64_t heads = 0;
    std::uint64_t codes = 0;
    std::uint64_t all = 0;
    const auto add_up = [&](const ChunkContent& content, std::uint32_t bytes) {
      heads += content.head_bytes * std::uint64_t{8};
      codes += content.code_bits;
      all += bytes * std::uint64_t{8};
    };
    RETURN_IF_ERROR(decode_chunks(in, {.slot = nullptr, .count = count}, add_up));
    add_section(sections, "chunk heads", heads);
    add_section(sections, "positions", codes);
    add_section(sections, "padding", all - heads - codes);
    return {};
  }

 private:
  // Leaves x in the new residual where that lies apart, and otherwise writes nothing, so that an error leaves
  // the residual as it was.
  Result<Update> choose(const PartSource& source, MutBytes scratch) const {
    const std::uint64_t keep = kept_of(p_, source.count);
    Selection selected = lay_out(scratch, candidate_room(source.count, keep));
    float* const left = source.left != source.residual ? source.left : nullptr;
    kernels_.select({source.in, source.residual, left, source.count, keep}, selected.positive,
                    selected.negative, selected.spare);
    const double positive = mean(selected.positive);
    const double negative = mean(selected.negative);
    // What isn't finite is larger than all else, so it was kept.
    if (!std::isfinite(positive) || !std::isfinite(negative)) return not_finite();
    if (positive >= negative) return Update{selected.positive, static_cast<float>(positive)};
    return Update{selected.negative, -static_cast<float>(negative)};
  }

  // 0 of no values.
  double mean(const Candidates& kept) const {
    if (kept.count == 0) return 0;
    return kernels_.sum(kept.magnitudes, kept.count) / static_cast<double>(kept.count);
  }

  // Completes the new residual. In place x isn't there yet: it is put there block by block, and what is sent
  // is subtracted while the block is in the cache.
  void keep_unsent(const PartSource& source, const Update& update) const {
    constexpr std::uint64_t kBlock = 4096;
    const std::uint32_t* at = update.kept.positions;
    const std::uint32_t* const end = at + update.kept.count;
    if (source.left == source.residual) {
      for (std::uint64_t first = 0; first < source.count; first += kBlock) {
        const std::uint64_t block_end = std::min(first + kBlock, source.count);
        kernels_.add(source.in + first, source.left + first, block_end - first);
        const std::uint32_t* const sent = at;
        while (at != end && *at < block_end) ++at;
        kernels_.subtract(source.left, sent, static_cast<std::uint64_t>(at - sent), update.mean);
      }
    } else {
      kernels_.subtract(source.left, at, update.kept.count, update.mean);
    }
  }

  EncodedPart encode_chunks(const Update& update, const PartBuffer& out) const {
    std::uint64_t written = 0;
    std::uint32_t chunks = 0;
    std::uint64_t at = 0;
    do {  // nothing to send is a chunk too: a segment has at least one
      const auto count =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(update.kept.count - at, kChunkPositions));
      const MutBytes rest = out.payload.subspan(written);
      written += sparse::write_positions(kernels_, positions_, {update.kept.positions + at, count}, rest);
      out.chunk_ends[chunks++] = static_cast<std::uint32_t>(written);
      at += count;
    } while (at < update.kept.count);
    return EncodedPart{
        .payload_bytes = written, .chunks = chunks, .scalar = std::bit_cast<std::uint32_t>(update.mean)};
  }

  static Status check_part(const PartView& in, std::uint64_t count) {
    RETURN_IF_ERROR(sparse::check_count("sbc", count));
    if ((in.scalar & ~kSignBit) < kInfinityBits && in.scalar != kSignBit) return {};
    return corrupt("sbc: the bits of the mean are " + std::to_string(in.scalar) +
                   ", not a finite number other than -0");
  }

  // Calls visit(content, bytes) for each chunk.
  template <class Visit>
  Status decode_chunks(const PartView& in, const DecodeTarget& target, Visit visit) const {
    std::uint64_t next = 0;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const ChunkBytes chunk = chunk_of(in, i);
      const ChunkContent content = kernels_.decode_chunk(chunk, next, target);
      RETURN_IF_ERROR(fault_status("sbc", i, content.fault));
      const bool is_last = i + 1 == in.chunk_ends.size();
      if (!is_last && content.positions < kChunkPositions) {
        return chunk_error("sbc", ErrorCode::kCorrupt, i,
                           "fewer than 16384 positions, though another chunk follows");
      }
      if ((content.positions == 0) != (in.scalar == 0)) {
        return chunk_error("sbc", ErrorCode::kCorrupt, i, "a mean without positions, or positions of mean 0");
      }
      visit(content, chunk.bytes);
      next = content.next;
    }
    return {};
  }

  std::string spec_with(float p) const {
    const std::string plain = "sbc:p=" + canonical_number(p);
    if (positions_ == PositionCode::kGolomb) return plain;
    return plain + ",positions=" + std::string(sparse::name_of(positions_));
  }

  float p_;
  std::optional<float> pull_;  // none: as p
  PositionCode positions_;
  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  constexpr FloatRange kRange = {.low = 1e-6F, .high = 1, .default_value = 0.01F};
  ASSIGN_OR_RETURN(const auto p, fraction_parameter(spec, "p", kRange));
  ASSIGN_OR_RETURN(const auto pull, pull_parameter(spec, "p", kRange));
  ASSIGN_OR_RETURN(const auto positions, sparse::positions_parameter(spec));
  return std::make_unique<const Sbc>(p, pull, positions, sparse::kernels_for(target));
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make, own_kernels<sparse::kernels_for>};

}  // namespace deltawire::sbc
