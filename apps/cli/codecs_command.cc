// deltawire codecs: the registered codecs as text, as JSON, and as the Markdown table of
// docs/reference/compare.md.
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/measure/input.h"
#include "cli/number_text.h"
#include "deltawire/codec.h"
#include "deltawire/reducer.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;

// The codec with all defaults. REQUIRES: kernel_target_in_use() is not an error.
std::unique_ptr<const Codec> default_codec(const CodecInfo& info) {
  return std::move(*make_codec(info.name));
}

Json to_json(const CodecInfo& info) {
  Json parameters = Json::array();
  for (const ParameterInfo& parameter : info.parameters) {
    parameters.push_back({{"name", parameter.name},
                          {"range", parameter.range},
                          {"default", parameter.default_value},
                          {"meaning", parameter.meaning}});
  }
  return {{"name", info.name},
          {"id", info.id},
          {"summary", info.summary},
          {"source", info.source},
          {"default_spec", default_codec(info)->spec()},
          {"examples", std::vector(info.examples.begin(), info.examples.end())},
          {"default_pattern", info.default_pattern},
          {"gain", default_codec(info)->gain()},
          {"lossless", info.lossless},
          {"error_feedback", info.error_feedback},
          {"finite_only", info.finite_only},
          {"bytes_follow_library", info.bytes_follow_library},
          {"scalars", info.scalars},
          {"chunk_elements", info.chunk_elements},
          {"parameters", std::move(parameters)}};
}

void print_text(const CodecInfo& info) {
  const bool in_ring = make_reducer("ring(" + std::string(info.name) + ")").has_value();
  std::cout << info.name << " (id " << info.id << "): " << info.summary << "\n"
            << "  source      " << info.source << "\n"
            << "  default     " << default_codec(info)->spec() << "\n"
            << "  pattern     " << info.default_pattern << (in_ring ? "" : "; not ring") << "\n"
            << "  values      "
            << (info.lossless         ? "come back bit for bit"
                : info.error_feedback ? "are changed; in training, error feedback sends the rest later"
                                      : "are changed")
            << (info.finite_only ? "; NaN and Inf are refused" : "; NaN and Inf are carried") << "\n";
  if (info.parameters.empty()) std::cout << "  parameters  none\n";
  for (const ParameterInfo& parameter : info.parameters) {
    std::cout << "  parameter   " << parameter.name << "=" << parameter.default_value << "  ("
              << parameter.range << ")\n"
              << "              " << parameter.meaning << "\n";
  }
  std::string examples;
  for (const std::string_view spec : info.examples)
    examples += (examples.empty() ? "" : ", ") + std::string(spec);
  if (!examples.empty()) std::cout << "  examples    " << examples << "\n";
}

Outcome<void> list_codecs(bool json) {
  const auto target = kernel_target_in_use();
  if (!target) return misused(target.error().message);
  if (json) {
    Json codecs = Json::array();
    for (const CodecInfo* info : registered_codecs()) codecs.push_back(to_json(*info));
    Json targets = Json::array();
    for (const KernelTarget& each : kernel_targets()) {
      targets.push_back({{"name", each.name}, {"runs_here", each.runs_here}});
    }
    std::cout << Json{{"codecs", std::move(codecs)},
                      {"kernel_target", *target},
                      {"kernel_targets", std::move(targets)}}
                     .dump(2)
              << "\n";
    return {};
  }
  for (const CodecInfo* info : registered_codecs()) {
    print_text(*info);
    std::cout << "\n";
  }
  std::cout << "A spec is a name, or name:parameter=value,parameter=value; omitted parameters have their "
               "defaults.\n"
            << "Kernels run for: " << *target << ". DELTAWIRE_FORCE_TARGET chooses among";
  for (const KernelTarget& each : kernel_targets()) {
    std::cout << " " << each.name << (each.runs_here ? "" : " (not on this CPU)");
  }
  std::cout << "; all give the same bytes.\n";
  return {};
}

// Inputs so different that a size that depends on the values shows.
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
  return rounded(bits) + " (" + times_smaller_text(32 / bits) + ")";
}

// "yes", or "with `spec`" of the first example that has the property, if the codec by default does not.
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

// Cells of a table must not contain bars.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char character : text) {
    if (character == '|') escaped += '\\';
    escaped += character;
  }
  return escaped;
}

// All of it comes from CodecInfo, and from encoding a few values to see whether a codec's size depends on
// them.
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

Outcome<void> print_markdown() {
  if (const auto target = kernel_target_in_use(); !target) return misused(target.error().message);
  std::cout << codec_table();
  return {};
}

}  // namespace

void add_codecs_command(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("codecs", "List all codecs with their parameters");
  const auto json = std::make_shared<bool>(false);
  const auto markdown = std::make_shared<bool>(false);
  CLI::Option* as_json = command->add_flag("--json", *json, "Print JSON for programs");
  command->add_flag("--markdown", *markdown, "Print one table, in Markdown")->excludes(as_json);
  command->footer(
      "Examples:\n"
      "  deltawire codecs\n"
      "  deltawire codecs --markdown > codecs.md\n"
      "  deltawire codecs --json | jq '.codecs[].default_spec'\n");
  command->callback([&chosen, json, markdown] {
    chosen = [json, markdown] { return *markdown ? print_markdown() : list_codecs(*json); };
  });
}

}  // namespace deltawire::cli
