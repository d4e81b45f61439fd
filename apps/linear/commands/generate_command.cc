// deltawire generate: data in the shape of published sets, at any scale, with a right answer.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/number_text.h"
#include "cli/outcome.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "linear/commands/commands.h"
#include "linear/commands/model_file.h"
#include "linear/generate_rows.h"
#include "linear/parse_rows.h"

namespace deltawire::linear {

namespace {

constexpr std::size_t kTextBytes = std::size_t{1} << 18;

struct GenerateOptions {
  std::string name;
  std::string output;
  double scale = 0.01;
  std::uint64_t rows = 0;
  GenerateSettings settings;
  std::string weights;
  bool force = false;
};

DataShape complete(GenerateOptions& options) {
  const auto shape = find_shape(options.name);
  const auto scaled = [&](std::uint64_t whole) {
    return static_cast<std::uint64_t>(std::ceil(options.scale * static_cast<double>(whole)));
  };
  if (options.rows == 0) options.rows = scaled(shape->rows);
  std::uint64_t& features = options.settings.features;
  if (features == 0) features = scaled(shape->features);
  const std::uint64_t least = std::max<std::uint64_t>(2, shape->fields.size());
  if (features < least) {
    throw cli::misused(options.name + " needs " + std::to_string(least) +
                       " features or more; raise --scale, or name them: --features");
  }
  if (features >= kKeysMax) {
    throw cli::misused("2^32 - 2 features are more than training takes; lower --scale or --features");
  }
  if (options.rows > std::uint64_t{1} << 48) {
    throw cli::misused("2^48 rows are the most; lower --scale or --rows");
  }
  if (options.weights == "-") throw cli::misused("--weights: - has lines for people; name a file");
  cli::check_outputs({options.output, options.weights}, options.force, {});
  return *shape;
}

void write_rows(const GenerateOptions& options, RowGenerator& generator) {
  auto output = cli::OutputFile::create(options.output, options.force);
  cli::Progress progress;
  std::string text;
  std::uint64_t bytes = 0;
  for (std::uint64_t row = 0; row < options.rows; ++row) {
    generator.append(row, text);
    if (text.size() < kTextBytes && row + 1 < options.rows) continue;
    output.write(std::as_bytes(std::span(text)));
    bytes += text.size();
    text.clear();
    progress.show("generate: " + std::to_string(100 * (row + 1) / options.rows) + " % of " +
                  cli::grouped(options.rows) + " rows");
  }
  output.commit();
  cli::report_stream(options.output) << cli::output_name(options.output) << ": " << cli::grouped(options.rows)
                                     << " rows, " << cli::grouped(options.settings.features) << " features, "
                                     << cli::grouped(bytes) << " bytes of text\n";
}

// The planted model, as 'predict' reads it.
void write_weights(const GenerateOptions& options, const RowGenerator& generator) {
  LinearModel model;
  model.weights.resize(options.settings.features + 1);  // there is no index 0
  for (std::size_t index = 1; index < model.weights.size(); ++index) {
    model.weights[index] = generator.weight_of(index);
  }
  model.bias = static_cast<float>(-generator.threshold());
  model.settings = nlohmann::ordered_json{{"planted", options.name},
                                          {"loss", "logistic"},
                                          {"hash_bits", 0},
                                          {"rows", options.rows},
                                          {"features", options.settings.features},
                                          {"noise", options.settings.noise},
                                          {"seed", options.settings.seed}}
                       .dump();
  write_model(options.weights, model, options.force);
}

void generate(GenerateOptions& options) {
  const auto shape = complete(options);
  RowGenerator generator(shape, options.settings);
  write_rows(options, generator);
  if (options.weights.empty()) return;
  try {
    write_weights(options, generator);
  } catch (const cli::Failure&) {
    std::error_code gone;
    if (options.output != "-") std::filesystem::remove(options.output, gone);
    throw;
  }
}

std::string generate_footer() {
  std::string text = "NAME             rows     features   non-zeros a row\n";
  std::array<char, 80> line{};
  for (const DataShape& shape : all_shapes()) {
    std::snprintf(line.data(), line.size(), "%-8s %12s %12s %17s\n", std::string(shape.name).c_str(),
                  cli::grouped(shape.rows).c_str(), cli::grouped(shape.features).c_str(),
                  cli::rounded(shape.features_a_row).c_str());
    text += line.data();
  }
  return text +
         "\n"
         "Rows have the format that 'train linear' reads. Frequencies of features follow Zipf's law.\n"
         "Labels are 1 and -1, from weights with a normal distribution: --weights writes them as a model\n"
         "for 'predict'. The same arguments give the same rows.\n"
         "\n"
         "Examples:\n"
         "  deltawire generate kdd12 --scale 0.01 clicks.libsvm\n"
         "  deltawire generate url --rows 100000 --features 20000 rows.libsvm --weights planted.npz\n"
         "  deltawire predict --model planted.npz --data rows.libsvm --margins > right-answers.txt\n";
}

}  // namespace

void add_generate_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("generate", "Generate data shaped like published sets of sparse rows");
  const auto options = std::make_shared<GenerateOptions>();
  std::vector<std::string> names;
  for (const DataShape& shape : all_shapes()) names.emplace_back(shape.name);
  cli::add_value(*command, "NAME NAME", options->name, "The set to imitate")
      ->required()
      ->check(CLI::IsMember(names));
  cli::add_value(*command, "OUT FILE", options->output, "The file to write; - for standard output")
      ->required();
  cli::add_value(*command, "--scale S", options->scale, "Proportion of the set's rows and features")
      ->check(cli::number_range(1e-9, 100));
  cli::add_value(*command, "--rows N", options->rows, "Number of rows, instead of by scale")
      ->transform(cli::count_range(1));
  cli::add_value(*command, "--features N", options->settings.features,
                 "Number of features, instead of by scale")
      ->transform(cli::count_range(1));
  cli::add_value(*command, "--noise P", options->settings.noise, "Proportion of random labels")
      ->check(cli::number_range(0, 1));
  cli::add_value(*command, "--seed N", options->settings.seed, "Seed of rows, labels and weights");
  cli::add_value(*command, "--weights FILE", options->weights,
                 "Write the planted weights to FILE, as a model (.npz)");
  command->add_flag("--force", options->force, "Replace files that exist");
  command->footer(generate_footer());
  command->callback([options] { generate(*options); });
}

}  // namespace deltawire::linear
