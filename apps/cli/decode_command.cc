// deltawire decode IN OUT
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cli/arrays/array_file.h"
#include "cli/commands.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "deltawire/file.h"

namespace deltawire::cli {
namespace {

struct DecodeOptions {
  std::string input;
  std::string output;
  bool force = false;
};

// Counts the encoded bytes that are read.
class CountedSource final : public ByteSource {
 public:
  CountedSource(std::unique_ptr<ByteSource> source, std::uint64_t& bytes)
      : source_(std::move(source)), bytes_(bytes) {}

  Result<std::size_t> read(MutBytes out) override {
    Result<std::size_t> got = source_->read(out);
    bytes_ += got.value_or(0);
    return got;
  }

 private:
  std::unique_ptr<ByteSource> source_;
  std::uint64_t& bytes_;
};

void decode_array(ArrayReader& array, const ArrayFile::Member& member, ArrayOutput& output) {
  const ArrayInfo& info = array.info();
  const std::string header = npy_header(info);
  output.open(member.name + ".npy", header.size() + info.bytes());
  output.write(std::as_bytes(std::span(header)));
  Progress progress;
  // A header's count is only a claim: memory that is left untouched takes no room.
  const std::uint64_t most = std::min(info.count, kFilePartElements);
  const std::uint64_t each = value_bytes(info.type);
  const auto values = std::make_unique_for_overwrite<std::byte[]>(most * each);
  for (std::uint64_t first = 0; first < info.count;) {
    const std::uint64_t count = std::min(most, info.count - first);
    if (first > 0) progress.show(grouped(first) + " of " + grouped(info.count) + " values: " + member.shown);
    array.read(values.get(), count);
    output.write(Bytes(values.get(), count * each));
    first += count;
  }
  return output.close();
}

void decode(const DecodeOptions& options) {
  auto file = OutputFile::create(options.output, options.force, {options.input});
  auto input = ArrayFile::open(options.input);
  require_kind(input, FileKind::kDw);
  auto output = ArrayOutput::begin(file, input.is_archive());
  FileSize size;
  for (const ArrayFile::Member& member : input.members()) {
    auto source = std::make_unique<CountedSource>(input.bytes_of(member), size.file_bytes);
    auto array = open_dw(std::move(source), member.shown);
    decode_array(*array, member, output);
    size.count += array->info().count;
    size.tensor_bytes += array->info().bytes();
  }
  output.finish();
  file.commit();
  report_coded(input, FileKind::kDw, options.output, size);
}

}  // namespace

void add_decode_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("decode", "Decode a .dw file to a .npy file, or a .dwz to a .npz");
  const auto options = std::make_shared<DecodeOptions>();
  command->add_option("IN", options->input, "A file of 'deltawire encode'; - for standard input")->required();
  command->add_option("OUT", options->output, "The file to write; - for standard output")->required();
  command->add_flag("--force", options->force, "Replace OUT if it exists");
  command->footer(
      "Verifies every checksum. Writes OUT completely or not at all, in the type that was\n"
      "encoded: float32, float16, or bfloat16 as ml_dtypes saves it (dtype '<V2'; read it with\n"
      "array.view(ml_dtypes.bfloat16)).\n"
      "\n"
      "Examples:\n"
      "  deltawire decode gradient.dw gradient.npy\n"
      "  deltawire decode model.dwz model.npz\n"
      "  ssh host 'cat update.dw' | deltawire decode - update.npy --force\n");
  command->callback([options] { decode(*options); });
}

}  // namespace deltawire::cli
