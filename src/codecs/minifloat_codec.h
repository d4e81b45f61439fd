// The codecs of floats of few bits, whose blocks share a power of two: their parameters, and the texts of
// what they refuse.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "codecs/block_codec.h"
#include "codecs/kernels/minifloat.h"
#include "codecs/spec_string.h"

namespace deltawire {

inline constexpr ParameterInfo kMinifloatBlock = {"block", "32, 64, 128, 256, 512 or 1024", "32",
                                                  "elements that share a power of two"};

// A format by its name in specs.
struct NamedMinifloat {
  std::string_view name;
  Minifloat format;
};

class MinifloatCodec final : public BlockCodec<MinifloatBlocks> {
 public:
  MinifloatCodec(const CodecInfo& info, const NamedMinifloat& format, std::uint32_t block, unsigned code_bits,
                 const BlockKernels<MinifloatBlocks>& kernels) noexcept
      : BlockCodec(info, {format.format, block}, kernels, {"scales", 1}, code_bits), name_(format.name) {}

  std::string spec() const override {
    return std::string(info().name) + ":format=" + std::string(name_) +
           ",block=" + std::to_string(shape().block);
  }

 private:
  Status check_chunk(const ChunkBytes& chunk, std::size_t number, std::uint32_t count) const override {
    const auto corrupt = [&](const std::string& text) {
      return chunk_error(info().name, ErrorCode::kCorrupt, number, text);
    };
    const std::uint64_t block = kernels().find_bad_scale(chunk.at, count, shape());
    if (block < shape().blocks(count)) {
      return corrupt("the scale of block " + std::to_string(block) + " is " +
                     std::to_string(std::to_integer<unsigned>(chunk.at[block])) + ", above " +
                     std::to_string(shape().largest_scale()));
    }
    const std::uint64_t bad = kernels().find_bad_code(chunk.at, count, shape());
    if (bad < count) return corrupt("the code of element " + std::to_string(bad) + " is not finite");
    return {};
  }

  std::string_view name_;  // of the format
};

// The codec `info` with two formats, of which the first is the default.
inline Result<std::unique_ptr<const Codec>> make_minifloat(const CodecInfo& info, const ParsedSpec& spec,
                                                           std::span<const NamedMinifloat, 2> formats,
                                                           unsigned code_bits,
                                                           const BlockKernels<MinifloatBlocks>& kernels) {
  constexpr std::string_view kBlocks[] = {"32", "64", "128", "256", "512", "1024"};
  constexpr std::uint32_t kFirstBlock = 32;
  const std::string_view names[] = {formats[0].name, formats[1].name};
  const auto format = choice_parameter(spec, "format", names, 0);
  if (!format) return forward_error(format);
  const auto block = choice_parameter(spec, "block", kBlocks, 0);
  if (!block) return forward_error(block);
  return std::make_unique<const MinifloatCodec>(info, formats[*format], kFirstBlock << *block, code_bits,
                                                kernels);
}

}  // namespace deltawire
