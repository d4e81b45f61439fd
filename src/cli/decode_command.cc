// deltawire decode IN.dw OUT.npy
#include <memory>
#include <ostream>
#include <span>
#include <string>

#include "cli/commands.h"
#include "cli/input_file.h"
#include "cli/npy.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "deltawire/file.h"

namespace deltawire::cli {
namespace {

struct DecodeOptions {
  std::string input;
  std::string output;
  bool force = false;
};

Outcome<void> decode(const DecodeOptions& options) {
  auto output = OutputFile::create(options.output, options.force);
  if (!output) return tl::unexpected<Failure>(output.error());
  const auto input = read_input(options.input);
  if (!input) return tl::unexpected<Failure>(input.error());
  const auto header = read_file_header(*input);
  if (!header) return failed_reading(options.input, header.error());
  if (header->dtype != DType::kF32) {
    return failed(input_name(options.input) + ": holds " + std::string(dtype_name(header->dtype)) +
                  ", but this program writes float32 only; decode it with the library");
  }
  // The header's count is only a claim: the memory is left untouched, and so takes no room, until the
  // decoder has values to put there.
  const std::uint64_t count = header->count();
  const auto values = std::make_unique_for_overwrite<float[]>(count);
  if (const auto decoded = decode_file(*input, TensorSlot{values.get(), count, DType::kF32}); !decoded) {
    return failed_reading(options.input, decoded.error());
  }
  const std::string npy_header = npy_float32_header(header->shape);
  if (auto written = output->write(std::as_bytes(std::span(npy_header))); !written) return written;
  const std::span<const float> decoded_values(values.get(), count);
  if (auto written = output->write(std::as_bytes(decoded_values)); !written) return written;
  if (auto committed = output->commit(); !committed) return committed;

  const FileSize size{count, count * sizeof(float), input->size()};
  report_stream(options.output) << output_name(options.output) << ": " << grouped(size.count) << " values, "
                                << grouped(size.file_bytes) << " -> " << grouped(size.tensor_bytes)
                                << " bytes, " << ratio_text(size) << "\n";
  return {};
}

}  // namespace

void add_decode_command(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("decode", "Decode a .dw file to a .npy file");
  const auto options = std::make_shared<DecodeOptions>();
  command->add_option("IN.dw", options->input, "What 'deltawire encode' wrote; - for standard input")
      ->required();
  command->add_option("OUT.npy", options->output, "The file to write; - for standard output")->required();
  command->add_flag("--force", options->force, "Replace OUT.npy if it exists");
  command->footer(
      "Verifies every checksum; writes OUT.npy whole or not at all.\n\n"
      "Examples:\n"
      "  deltawire decode gradient.dw gradient.npy\n"
      "  ssh host 'cat update.dw' | deltawire decode - update.npy --force\n");
  command->callback([&chosen, options] { chosen = [options] { return decode(*options); }; });
}

}  // namespace deltawire::cli
