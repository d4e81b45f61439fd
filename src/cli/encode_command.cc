// deltawire encode SPEC IN OUT
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cli/arrays/array_file.h"
#include "cli/arrays/array_output.h"
#include "cli/commands.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "deltawire/codec.h"
#include "deltawire/file.h"

namespace deltawire::cli {
namespace {

struct EncodeOptions {
  std::string spec;
  std::string input;
  std::string output;
  Policy policy;
  std::uint64_t part_elements = kFilePartElements;
  bool force = false;
};

// What codecs take: 16 bits stay 16, float64 must be float32 in truth.
DType coded_type(ValueType type) {
  if (type == ValueType::kF16) return DType::kF16;
  return type == ValueType::kBF16 ? DType::kBF16 : DType::kF32;
}

// The next `count` values, the first of which is number `first` of the array, as codecs take them.
Outcome<void> read_values(ArrayReader& array, const std::string& name, std::uint64_t first,
                          std::uint64_t count, std::byte* out) {
  if (array.info().type != ValueType::kF64) return array.read(out, count);
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 16;
  const auto block = std::make_unique_for_overwrite<double[]>(std::min(count, kBlock));
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t now = std::min(kBlock, count - done);
    if (auto read = array.read(block.get(), now); !read) return read;
    const std::uint64_t fits = narrow_values(block.get(), now, reinterpret_cast<float*>(out) + done);
    if (fits < now) {
      char value[32];
      std::snprintf(value, sizeof value, "%.17g", block[fits]);
      return failed(name + ": element " + std::to_string(first + done + fits) + " is " + value +
                    ", which is no float32; round them all in Python with array.astype('float32')");
    }
    done += now;
  }
  return {};
}

class Encoding {
 public:
  Encoding(const EncodeOptions& options, ArrayOutput& output) : options_(options), output_(output) {}

  Outcome<void> add(ArrayReader& array, const ArrayFile::Member& member) {
    const ArrayInfo& info = array.info();
    const DType dtype = coded_type(info.type);
    auto encoder =
        FileEncoder::make({options_.spec, options_.policy, dtype, info.shape, options_.part_elements});
    if (!encoder) return failed(member.shown + ": " + encoder.error().message);
    if (auto opened = output_.open(member.name + ".dw", std::nullopt); !opened) return opened;
    if (auto written = output_.write(encoder->header()); !written) return written;
    const auto values = std::make_unique_for_overwrite<std::byte[]>(encoder->due() * dtype_bytes(dtype));
    for (std::uint64_t first = 0; encoder->due() > 0;) {
      const std::uint64_t count = encoder->due();
      if (first > 0)
        progress_.show(grouped(first) + " of " + grouped(info.count) + " values: " + member.shown);
      if (auto read = read_values(array, member.shown, first, count, values.get()); !read) return read;
      const auto pieces = encoder->encode(TensorView{values.get(), count, dtype});
      if (!pieces) return failed(member.shown + ": " + pieces.error().message);
      for (const Bytes piece : *pieces) {
        if (auto written = output_.write(piece); !written) return written;
      }
      first += count;
    }
    size_.count += info.count;
    size_.tensor_bytes += info.count * dtype_bytes(dtype);
    return output_.close();
  }

  FileSize size() const noexcept { return {size_.count, size_.tensor_bytes, output_.bytes()}; }

 private:
  const EncodeOptions& options_;
  ArrayOutput& output_;
  Progress progress_;
  FileSize size_;
};

Outcome<void> encode(const EncodeOptions& options) {
  if (const auto codec = make_codec(options.spec); !codec) {
    return misused("SPEC \"" + options.spec + "\": " + codec.error().message +
                   "; 'deltawire codecs' lists them all");
  }
  auto file = OutputFile::create(options.output, options.force, {options.input});
  if (!file) return tl::unexpected<Failure>(file.error());
  auto input = ArrayFile::open(options.input);
  if (!input) return tl::unexpected<Failure>(input.error());
  if (auto right = require_kind(*input, FileKind::kNpy); !right) return right;
  auto output = ArrayOutput::begin(*file, input->is_archive());
  if (!output) return tl::unexpected<Failure>(output.error());
  FileSize size;
  {
    Encoding encoding(options, *output);
    for (const ArrayFile::Member& member : input->members()) {
      auto array = input->array(member);
      if (!array) return tl::unexpected<Failure>(array.error());
      if (auto added = encoding.add(**array, member); !added) return added;
    }
    size = encoding.size();
  }
  if (auto finished = output->finish(); !finished) return finished;
  if (auto committed = file->commit(); !committed) return committed;
  report_coded(*input, FileKind::kNpy, options.output, size);
  return {};
}

}  // namespace

void add_encode_command(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("encode", "Encode a .npy file as a .dw file, or a .npz as a .dwz");
  const auto options = std::make_shared<EncodeOptions>();
  command->add_option("SPEC", options->spec, "Codec and parameters, e.g. 3lc:s=1.75")->required();
  command->add_option("IN", options->input, "A .npy or .npz file; - for standard input")->required();
  command->add_option("OUT", options->output, "The file to write; - for standard output")->required();
  command
      ->add_option("--min-elements", options->policy.min_elements,
                   "Arrays (and last parts) of fewer values are kept as they are; 0 encodes all")
      ->check(CLI::NonNegativeNumber)  // CLI11 2.1 would take -1 for 2^64 - 1
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--part-elements", options->part_elements,
                   "Longer arrays are cut into parts of so many values, each coded alone")
      ->check(CLI::Range(std::uint64_t{1}, (std::uint64_t{1} << 32) - 1))
      ->capture_default_str()
      ->type_name("N");
  command->add_flag("--force", options->force, "Replace OUT if it exists");
  command->footer(
      "Takes float32, float16 and bfloat16, and float64 where every value is a float32;\n"
      "either byte order, C or Fortran order. Memory is that of a part, however long the\n"
      "array. Writes OUT whole or not at all, and prints how much smaller it is.\n"
      "Without error feedback: one array alone has no residual.\n"
      "A .npz becomes a .dwz: a zip archive with a .dw file for each array.\n\n"
      "Examples:\n"
      "  deltawire encode 3lc:s=1.75 gradient.npy gradient.dw\n"
      "  deltawire encode bf16 weights.npy weights.dw --force\n"
      "  deltawire encode 3lc bias.npy bias.dw --min-elements 0\n"
      "  deltawire encode 3lc model.npz model.dwz\n"
      "  python make_array.py | deltawire encode 3lc - - | ssh host 'cat > update.dw'\n");
  command->callback([&chosen, options] { chosen = [options] { return encode(*options); }; });
}

}  // namespace deltawire::cli
