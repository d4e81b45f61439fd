// deltawire encode SPEC IN.npy OUT.dw
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

#include "cli/commands.h"
#include "cli/input_file.h"
#include "cli/npy.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "deltawire/codec.h"
#include "deltawire/file.h"

namespace deltawire::cli {
namespace {

struct EncodeOptions {
  std::string spec;
  std::string input;
  std::string output;
  Policy policy;
  bool force = false;
};

Outcome<void> encode(const EncodeOptions& options) {
  if (const auto codec = make_codec(options.spec); !codec) {
    return misused("SPEC \"" + options.spec + "\": " + codec.error().message +
                   "; 'deltawire codecs' lists them all");
  }
  auto output = OutputFile::create(options.output, options.force);
  if (!output) return tl::unexpected<Failure>(output.error());
  auto input = read_input(options.input);
  if (!input) return tl::unexpected<Failure>(input.error());
  const std::string name = input_name(options.input);
  const auto array = parse_npy(*input, name);
  if (!array) return tl::unexpected<Failure>(array.error());

  const auto file = encode_file(array->tensor, array->shape, options.spec, options.policy);
  if (!file) return failed(name + ": " + file.error().message);
  if (auto written = output->write(*file); !written) return written;
  if (auto committed = output->commit(); !committed) return committed;

  const FileSize size{array->tensor.count, array->tensor.count * sizeof(float), file->size()};
  report_stream(options.output) << output_name(options.output) << ": " << grouped(size.count) << " values, "
                                << grouped(size.tensor_bytes) << " -> " << grouped(size.file_bytes)
                                << " bytes, " << ratio_text(size) << "\n";
  return {};
}

}  // namespace

void add_encode_command(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("encode", "Encode the float32 array of a .npy file as a .dw file");
  const auto options = std::make_shared<EncodeOptions>();
  command->add_option("SPEC", options->spec, "Codec and parameters, e.g. 3lc:s=1.75")->required();
  command->add_option("IN.npy", options->input, "A float32 array in C order; - for standard input")
      ->required();
  command->add_option("OUT.dw", options->output, "The file to write; - for standard output")->required();
  command
      ->add_option("--min-elements", options->policy.min_elements,
                   "Arrays of fewer values are kept as float32; 0 encodes all")
      ->check(CLI::NonNegativeNumber)  // CLI11 2.1 would take -1 for 2^64 - 1
      ->capture_default_str()
      ->type_name("N");
  command->add_flag("--force", options->force, "Replace OUT.dw if it exists");
  command->footer(
      "Writes OUT.dw whole or not at all, and prints how much smaller it is.\n"
      "Without error feedback: one array alone has no residual.\n\n"
      "Examples:\n"
      "  deltawire encode 3lc:s=1.75 gradient.npy gradient.dw\n"
      "  deltawire encode bf16 weights.npy weights.dw --force\n"
      "  deltawire encode 3lc bias.npy bias.dw --min-elements 0\n"
      "  python make_array.py | deltawire encode 3lc - - | ssh host 'cat > update.dw'\n");
  command->callback([&chosen, options] { chosen = [options] { return encode(*options); }; });
}

}  // namespace deltawire::cli
