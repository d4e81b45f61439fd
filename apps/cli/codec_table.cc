#include "cli/codec_table.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "cli/measure/synthetic.h"
#include "cli/number_text.h"
#include "deltawire/codec.h"

namespace deltawire::cli {
namespace {

// So different from each other that a size which follows the values gives itself away.
constexpr std::string_view kProbes[] = {"synthetic:normal", "synthetic:heavy-tail", "synthetic:uniform"};

std::optional<std::uint64_t> payload_bytes(const Codec& codec, const std::vector<float>& values) {
  const TensorView part{values.data(), values.size(), DType::kF32};
  const Sizes sizes = codec.sizes(part);
  std::vector<std::byte> payload(sizes.payload_bytes);
  std::vector<std::uint32_t> ends(sizes.chunks);
  std::vector<std::byte> scratch(sizes.scratch_bytes);
  const auto encoded = codec.encode(part, {}, {payload, ends}, {.scratch = scratch});
  if (!encoded) return std::nullopt;
  return encoded->payload_bytes;
}

std::string bits_text(const CodecInfo& info) {
  const auto codec = make_codec(info.name);
  if (!codec) return "varies";
  std::optional<std::uint64_t> same;
  double values = 0;
  for (const std::string_view probe : kProbes) {
    const auto input = synthetic_input(std::string(probe), true);
    if (!input) return "varies";
    const std::vector<float>& drawn = input->steps.front().tensors.front().values;
    const auto bytes = payload_bytes(**codec, drawn);
    if (!bytes || *bytes == 0 || (same && *same != *bytes)) return "varies";
    same = bytes;
    values = static_cast<double>(drawn.size());
  }
  const double bits = 8 * static_cast<double>(*same) / values;
  return rounded(bits) + " (" + rounded(32 / bits) + " times smaller)";
}

// "yes", or "with `spec`" of the first example that has what the codec by default has not.
std::string yes_or_with(const CodecInfo& info, bool CodecInfo::* property, const std::string& no) {
  if (info.*property) return "yes";
  for (const std::string_view example : info.examples) {
    const auto codec = make_codec(example);
    if (codec && (*codec)->info().*property) return "with `" + std::string(example) + "`";
  }
  return no;
}

std::string loses_text(const CodecInfo& info) {
  if (info.lossless) return "nothing";
  if (info.error_feedback) return "nothing permanently; the rest is sent in later steps";
  const std::string lossless = yes_or_with(info, &CodecInfo::lossless, "");
  return "what it rounds or leaves out" + (lossless.empty() ? "" : "; nothing " + lossless);
}

std::string forms_text(const CodecInfo& info) {
  std::string text = info.key_value ? "dense, key-value" : "dense";
  if (info.dtypes.size() == std::size(kAllDTypes)) return text;
  for (const DType dtype : info.dtypes) text += ", " + std::string(dtype_name(dtype));
  return text;
}

// A cell may hold no bar.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char character : text) {
    if (character == '|') escaped += '\\';
    escaped += character;
  }
  return escaped;
}

}  // namespace

std::string codec_table() {
  std::string text =
      "| codec | what it does | bits a value | loses | error feedback | NaN and Inf | forms | pattern | "
      "source |\n"
      "|---|---|---|---|---|---|---|---|---|\n";
  for (const CodecInfo* info : registered_codecs()) {
    const std::string cells[] = {"`" + std::string(info->name) + "`",
                                 std::string(info->summary),
                                 bits_text(*info),
                                 loses_text(*info),
                                 yes_or_with(*info, &CodecInfo::error_feedback, "no"),
                                 info->finite_only ? "refused" : "carried",
                                 forms_text(*info),
                                 "`" + std::string(info->default_pattern) + "`",
                                 std::string(info->source)};
    text += "|";
    for (const std::string& each : cells) text += " " + cell(each) + " |";
    text += "\n";
  }
  return text;
}

}  // namespace deltawire::cli
