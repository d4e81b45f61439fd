// deltawire encode SPEC IN OUT
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/float16.h"
#include "cli/arrays/array_file.h"
#include "cli/commands.h"
#include "cli/measure/errors.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "deltawire/channel.h"
#include "deltawire/codec.h"
#include "deltawire/file.h"

namespace deltawire::cli {
namespace {

constexpr double kMuchLost = 0.1;  // relative L2 error; int8's is about 0.01, 8-bit floats' 0.03

struct EncodeOptions {
  std::string spec;
  std::string input;
  std::string output;
  Policy policy;
  std::uint64_t part_elements = kFilePartElements;
  bool force = false;
};

// Compares the values of an array with those in the file, decoded part by part.
class Echo {
 public:
  // `header` is the file's. `name` is the array's, for errors.
  static Echo open(Bytes header, const std::string& name) {
    return Echo(value_or_failed(FileReader::open(header), name + ": "), name);
  }

  // Compares the part that was encoded last; `pieces` are its bytes.
  void add(std::span<const Bytes> pieces, const TensorView& part, ErrorSums& errors) {
    const std::size_t each = dtype_bytes(part.dtype);
    if (decoded_ == nullptr) decoded_ = std::make_unique_for_overwrite<std::byte[]>(part.count * each);
    if (Status read = reader_.read(pieces, TensorSlot{decoded_.get(), part.count, part.dtype}); !read) {
      throw failed(name_ + ": what was encoded cannot be decoded: " + read.error().message);
    }
    before_.resize(std::min<std::uint64_t>(kBlock, part.count));
    after_.resize(before_.size());
    const auto* values = static_cast<const std::byte*>(part.values);
    for (std::uint64_t done = 0; done < part.count; done += before_.size()) {
      const std::uint64_t now = std::min<std::uint64_t>(before_.size(), part.count - done);
      widen(values + done * each, part.dtype, now, before_.data());
      widen(decoded_.get() + done * each, part.dtype, now, after_.data());
      errors.add(std::span(after_).first(now), std::span(before_).first(now));
    }
  }

 private:
  static constexpr std::uint64_t kBlock = std::uint64_t{1} << 13;  // both stay in the cache

  Echo(FileReader reader, std::string name) : reader_(std::move(reader)), name_(std::move(name)) {}

  FileReader reader_;
  std::string name_;
  std::unique_ptr<std::byte[]> decoded_;  // as long as the first part, the longest
  std::vector<float> before_;
  std::vector<float> after_;
};

class Encoding {
 public:
  // `lossy`: what the codec loses is measured.
  Encoding(const EncodeOptions& options, bool lossy, ArrayOutput& output)
      : options_(options), lossy_(lossy), output_(output) {}

  void add(ArrayReader& array, const ArrayFile::Member& member) {
    const ArrayInfo& info = array.info();
    const DType dtype = coded_type(info.type);
    auto encoder = value_or_failed(
        FileEncoder::make({options_.spec, options_.policy, dtype, info.shape, options_.part_elements}),
        member.shown + ": ");
    output_.open(member.name + ".dw", std::nullopt);
    output_.write(encoder.header());
    std::optional<Echo> echo;
    if (lossy_) echo.emplace(Echo::open(encoder.header(), member.shown));
    const auto values = std::make_unique_for_overwrite<std::byte[]>(encoder.due() * dtype_bytes(dtype));
    for (std::uint64_t first = 0; encoder.due() > 0;) {
      const std::uint64_t count = encoder.due();
      if (first > 0)
        progress_.show(grouped(first) + " of " + grouped(info.count) + " values: " + member.shown);
      read_coded(array, member.shown, first, count, values.get());
      const TensorView part{values.get(), count, dtype};
      const auto pieces = value_or_failed(encoder.encode(part), member.shown + ": ");
      if (echo) echo->add(pieces, part, errors_);
      for (const Bytes piece : pieces) output_.write(piece);
      first += count;
    }
    size_.count += info.count;
    size_.tensor_bytes += info.count * dtype_bytes(dtype);
    return output_.close();
  }

  FileSize size() const noexcept { return {size_.count, size_.tensor_bytes, output_.bytes()}; }
  const ErrorSums& errors() const noexcept { return errors_; }

 private:
  const EncodeOptions& options_;
  bool lossy_;
  ErrorSums errors_;
  ArrayOutput& output_;
  Progress progress_;
  FileSize size_;
};

// Reports the loss. A large relative error gets a warning, since no later message makes up for it, on
// standard error, so that it is seen even if standard output is a file.
void report_loss(const std::string& spec, const std::string& output_path, const ErrorSums& errors) {
  const double relative = errors.relative_l2();
  report_stream(output_path) << "relative error " << rounded(relative) << " (L2), cosine "
                             << rounded(errors.cosine()) << "\n";
  if (!(relative > kMuchLost)) return;
  std::cerr << "warning: " << rounded(100 * relative) << " % of the values' size is lost: " << spec
            << " is made for training, where later messages make up for what one leaves out, and a file is "
               "one message; take zstd, bf16 or int8\n";
}

void encode(const EncodeOptions& options) {
  const auto codec = make_codec(options.spec);
  if (!codec && make_channel(options.spec)) {
    throw misused("SPEC \"" + options.spec +
                  "\": a file is encoded by one codec, and these are rules: give one of "
                  "their codecs");
  }
  if (!codec) {
    throw misused("SPEC \"" + options.spec + "\": " + codec.error().message +
                  "; 'deltawire codecs' lists them all");
  }
  auto file = OutputFile::create(options.output, options.force, {options.input});
  auto input = ArrayFile::open(options.input);
  require_kind(input, FileKind::kNpy);
  auto output = ArrayOutput::begin(file, input.is_archive());
  const bool lossy = !(*codec)->info().lossless;
  FileSize size;
  ErrorSums errors;
  {
    Encoding encoding(options, lossy, output);
    for (const ArrayFile::Member& member : input.members()) {
      encoding.add(*input.array(member), member);
    }
    size = encoding.size();
    errors = encoding.errors();
  }
  output.finish();
  file.commit();
  report_coded(input, FileKind::kNpy, options.output, size);
  if (lossy && size.count > 0) report_loss(options.spec, options.output, errors);
}

}  // namespace

void add_encode_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("encode", "Encode a .npy file as a .dw file, or a .npz as a .dwz");
  const auto options = std::make_shared<EncodeOptions>();
  command->add_option("SPEC", options->spec, "Codec and parameters, e.g. bf16 or zstd:level=9")->required();
  command->add_option("IN", options->input, "A .npy or .npz file; - for standard input")->required();
  command->add_option("OUT", options->output, "The file to write; - for standard output")->required();
  add_value(*command, "--min-elements N", options->policy.min_elements,
            "Store arrays (and last parts) with fewer values as they are; 0 encodes all")
      ->transform(count_range(0));
  add_value(*command, "--part-elements N", options->part_elements,
            "Cut longer arrays into parts of N values, each encoded alone")
      ->transform(count_range(1, (std::uint64_t{1} << 32) - 1));
  command->add_flag("--force", options->force, "Replace OUT if it exists");
  command->footer(
      "Takes float32, float16 and bfloat16, and float64 if every value is exactly a float32;\n"
      "either byte order, C or Fortran order. Needs memory for one part, however long the array.\n"
      "Writes OUT completely or not at all, and prints how much smaller it is.\n"
      "A file is one message: what codecs for training (3lc, topk, onebit, ...) leave out is not\n"
      "sent later. zstd is lossless; bf16 and int8 lose little. For a lossy codec, prints the error\n"
      "||decoded - values|| / ||values||, and the cosine between decoded and values.\n"
      "A .npz becomes a .dwz: a zip archive with a .dw file for each array.\n"
      "\n"
      "Examples:\n"
      "  deltawire encode int8 gradient.npy gradient.dw\n"
      "  deltawire encode bf16 weights.npy weights.dw --force\n"
      "  deltawire encode int8 bias.npy bias.dw --min-elements 0\n"
      "  deltawire encode zstd model.npz model.dwz\n"
      "  python make_array.py | deltawire encode bf16 - - | ssh host 'cat > update.dw'\n");
  command->callback([options] { encode(*options); });
}

}  // namespace deltawire::cli
