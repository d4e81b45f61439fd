#include "codecs/part_checks.h"

#include <bit>
#include <cstring>
#include <limits>

#include "base/bit_functions.h"
#include "base/checked.h"
#include "base/errors.h"
#include "codecs/spec_string.h"

namespace deltawire {

Status check_chunks(const PartView& in, std::uint64_t count, std::uint64_t chunk_elements) {
  assert(chunk_elements > 0);
  const std::uint64_t chunks = ceil_div(count, chunk_elements);
  if (in.chunk_ends.size() != chunks) {
    return corrupt(std::to_string(in.chunk_ends.size()) + " chunks for " + std::to_string(count) +
                   " elements, expected " + std::to_string(chunks));
  }
  return check_chunk_ends(in);
}

Status check_chunk_ends(const PartView& in) {
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
    if (in.chunk_ends[i] <= before) {
      return corrupt("chunk " + std::to_string(i) + " ends at byte " + std::to_string(in.chunk_ends[i]) +
                     ", not after the chunk before it");
    }
    before = in.chunk_ends[i];
  }
  if (before > in.payload.size()) {
    return truncated("payload has " + std::to_string(in.payload.size()) + " bytes, its chunks " +
                     std::to_string(before));
  }
  if (before < in.payload.size()) {
    return corrupt(std::to_string(in.payload.size() - before) + " bytes follow the last chunk");
  }
  return {};
}

Status check_fixed_ends(const PartView& in, std::uint64_t count, std::uint64_t chunk_elements,
                        std::uint64_t element_bytes) {
  assert(in.chunk_ends.size() == ceil_div(count, chunk_elements));
  for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
    const std::uint64_t elements = std::min(count, (i + 1) * chunk_elements);
    const std::uint64_t end = product_or_max(elements, element_bytes);
    if (in.chunk_ends[i] == end) continue;
    return fail(in.chunk_ends[i] < end ? ErrorCode::kTruncated : ErrorCode::kCorrupt,
                "chunk " + std::to_string(i) + " ends at byte " + std::to_string(in.chunk_ends[i]) +
                    ", expected " + std::to_string(end));
  }
  return {};
}

float* residual_in_place(const PartSource& part) noexcept {
  assert((part.left == nullptr) == (part.residual == nullptr));
  if (part.left != part.residual) std::memcpy(part.left, part.residual, part.count * sizeof(float));
  return part.left;
}

std::uint32_t chunks_or_max(std::uint64_t chunks) noexcept {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(chunks, std::numeric_limits<std::uint32_t>::max()));
}

Sizes fixed_sizes(std::uint64_t count, std::uint64_t chunk_elements, std::uint64_t element_bytes) noexcept {
  const std::uint64_t chunks = ceil_div(count, chunk_elements);
  return Sizes{.payload_bytes = product_or_max(count, element_bytes), .chunks = chunks_or_max(chunks)};
}

EncodedPart write_fixed_ends(std::uint64_t count, std::uint64_t chunk_elements, std::uint64_t element_bytes,
                             std::span<std::uint32_t> chunk_ends) noexcept {
  const std::uint64_t chunks = ceil_div(count, chunk_elements);
  assert(chunks <= chunk_ends.size());
  for (std::uint64_t i = 0; i < chunks; ++i) {
    chunk_ends[i] = static_cast<std::uint32_t>(std::min(count, (i + 1) * chunk_elements) * element_bytes);
  }
  return EncodedPart{
      .payload_bytes = count * element_bytes, .chunks = static_cast<std::uint32_t>(chunks), .scalar = 0};
}

Status check_scalar(std::string_view codec, std::string_view what, std::uint32_t bits) {
  if (bits < kInfinityBits) return {};
  return corrupt(std::string(codec) + ": " + std::string(what) + " is " +
                 number_text(std::bit_cast<float>(bits)) + ", not a finite number >= 0");
}

tl::unexpected<Error> chunk_error(std::string_view codec, ErrorCode code, std::uint64_t chunk,
                                  std::string_view text) {
  return fail(code, std::string(codec) + " chunk " + std::to_string(chunk) + ": " + std::string(text));
}

Status fault_status(std::string_view codec, std::uint64_t chunk, Fault fault) {
  if (fault == nullptr) return {};
  constexpr ErrorCode kCodes[] = {ErrorCode::kCorrupt, ErrorCode::kTruncated, ErrorCode::kOutputTooSmall};
  return chunk_error(codec, kCodes[static_cast<std::size_t>(fault->code)], chunk, fault->text);
}

void add_section(std::vector<Section>& sections, std::string_view name, std::uint64_t bits) {
  if (bits == 0) return;
  const auto at = std::ranges::find(sections, name, &Section::name);
  if (at == sections.end()) {
    sections.push_back(Section{name, bits});
  } else {
    at->bits += bits;
  }
}

}  // namespace deltawire
