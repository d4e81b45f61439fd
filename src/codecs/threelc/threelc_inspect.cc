#include "codecs/threelc/threelc_inspect.h"

#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/part_checks.h"

namespace deltawire::threelc {

namespace {

void describe_zero_runs(const ChunkBytes& chunk, std::vector<Section>& sections) {
  std::uint64_t runs = 0;
  for (std::uint32_t i = 1; i < chunk.bytes; ++i) {
    if (std::to_integer<std::uint32_t>(chunk.at[i]) >= kFirstRun) ++runs;
  }
  add_section(sections, "base-3^5", (chunk.bytes - 1 - runs) * 8);
  add_section(sections, "zero runs", runs * 8);
}

void describe_rice(const ChunkBytes& chunk, std::vector<Section>& sections) {
  const std::byte* in = chunk.at + 1;
  const auto parameter = std::to_integer<unsigned>(in[0]);
  const std::uint32_t nonzeros = load_le<std::uint16_t>(in + 1);
  const std::uint64_t stream_bytes = chunk.bytes - 1 - kRiceHeaderBytes;
  BitReader reader(in + kRiceHeaderBytes, stream_bytes);
  std::uint64_t positions = 0;
  for (std::uint32_t i = 0; i < nonzeros; ++i) {
    const unsigned unary = reader.get_unary(kMaxUnary);
    const bool escape = unary == kMaxUnary;
    const unsigned low_bits = escape ? kRiceEscapeBits : parameter;
    reader.get(low_bits);
    reader.get(1);
    positions += unary + (escape ? 0 : 1) + low_bits;
  }
  add_section(sections, "rice headers", kRiceHeaderBytes * 8);
  add_section(sections, "rice positions", positions);
  add_section(sections, "rice signs", nonzeros);
  add_section(sections, "padding", stream_bytes * 8 - positions - nonzeros);
}

}  // namespace

void describe_chunk(const ChunkBytes& chunk, std::vector<Section>& sections) {
  add_section(sections, "mode bytes", 8);
  switch (static_cast<ChunkMode>(chunk.at[0])) {
    case ChunkMode::kBase3: add_section(sections, "base-3^5", (std::uint64_t{chunk.bytes} - 1) * 8); break;
    case ChunkMode::kZeroRuns: describe_zero_runs(chunk, sections); break;
    case ChunkMode::kRice: describe_rice(chunk, sections); break;
  }
}

}  // namespace deltawire::threelc
