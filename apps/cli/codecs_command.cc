// deltawire codecs: the registered codecs as text and as JSON.
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "cli/commands.h"
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
  const std::string examples = list_of(info.examples, ", ", std::identity());
  if (!examples.empty()) std::cout << "  examples    " << examples << "\n";
}

void list_codecs(bool json) {
  const auto target = value_or_misused(kernel_target_in_use());
  if (json) {
    Json codecs = Json::array();
    for (const CodecInfo* info : registered_codecs()) codecs.push_back(to_json(*info));
    Json targets = Json::array();
    for (const KernelTarget& each : kernel_targets()) {
      targets.push_back({{"name", each.name}, {"runs_here", each.runs_here}});
    }
    std::cout << Json{{"codecs", std::move(codecs)},
                      {"kernel_target", target},
                      {"kernel_targets", std::move(targets)}}
                     .dump(2)
              << "\n";
    return;
  }
  for (const CodecInfo* info : registered_codecs()) {
    print_text(*info);
    std::cout << "\n";
  }
  std::cout << "A spec is a name, or name:parameter=value,parameter=value; omitted parameters have their "
               "defaults.\n"
            << "Kernels run for: " << target << ". DELTAWIRE_FORCE_TARGET chooses among";
  for (const KernelTarget& each : kernel_targets()) {
    std::cout << " " << each.name << (each.runs_here ? "" : " (not on this CPU)");
  }
  std::cout << "; all give the same bytes.\n";
}

}  // namespace

void add_codecs_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("codecs", "List all codecs with their parameters");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON for programs");
  command->footer(
      "Examples:\n"
      "  deltawire codecs\n"
      "  deltawire codecs --json | jq '.codecs[].default_spec'\n");
  command->callback([json] { list_codecs(*json); });
}

}  // namespace deltawire::cli
