// deltawire predict: a model of `train linear` on rows.
#include <array>
#include <charconv>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "cli/number_text.h"
#include "linear/commands/commands.h"
#include "linear/commands/model_file.h"
#include "linear/read_rows.h"
#include "linear/trainer.h"

namespace deltawire::linear {
namespace {

struct PredictOptions {
  std::string model;
  std::vector<std::string> data;
  bool merge_duplicates = false;
  bool margins = false;
};

// Features that the model has no weight for.
std::uint64_t unseen_features(const RowBlock& rows, std::size_t weights) {
  std::uint64_t unseen = 0;
  for (const std::uint32_t key : rows.keys) unseen += key >= weights ? 1 : 0;
  return unseen;
}

void print_rows(const RowBlock& rows, const LinearModel& model, bool margins) {
  std::string text;
  std::array<char, 32> digits{};
  for (std::size_t row = 0; row < rows.rows(); ++row) {
    double value = margin(rows, row, model.weights) + static_cast<double>(model.bias);
    if (model.loss == Loss::kLogistic && !margins) value = probability_of(value);
    const auto end =
        std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::general, 9);
    text.append(digits.data(), end.ptr);
    text += '\n';
  }
  std::cout << text;
}

void predict(const PredictOptions& options) {
  const auto model = read_model(options.model);
  const auto files = cli::value_or_failed(find_data_files(options.data));
  ParseOptions parse;
  parse.merge_duplicates = options.merge_duplicates;
  parse.hash_bits = model.hash_bits;
  std::uint64_t unseen = 0;
  std::uint64_t values = 0;
  const auto read = read_rows(files, {}, parse, [&](RowSink& sink, bool) -> Status {
    print_rows(sink.training, model, options.margins);
    unseen += unseen_features(sink.training, model.weights.size());
    values += sink.training.keys.size();
    sink.training.clear();
    if (!std::cout)
      return fail(ErrorCode::kIo, "standard output cannot be written; check the disk or the pipe");
    return {};
  });
  if (!read) throw cli::failed(read.error().message);
  std::cout.flush();
  if (unseen == 0) return;
  const std::string unseen_of_all = cli::grouped(unseen) + " of " + cli::grouped(values) +
                                    " values have an index beyond the model's " +
                                    cli::grouped(model.weights.size()) + " weights";
  if (unseen > values / 2) {
    throw cli::failed(unseen_of_all + ": these are not predictions; is this the model of another data set?");
  }
  std::cerr << "warning: " << unseen_of_all
            << " and were ignored; check that the model belongs to this data set\n";
}

}  // namespace

void add_predict_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("predict", "Predict with a model of 'train linear': one line per row");
  const auto options = std::make_shared<PredictOptions>();
  cli::add_value(*command, "--model FILE", options->model, "A model of 'deltawire train linear --model'")
      ->required();
  cli::add_value(*command, "--data FILE", options->data, "Rows, as for 'train linear'; - is standard input")
      ->required();
  command->add_flag("--merge-duplicates", options->merge_duplicates,
                    "Sort a row's features and add those with the same index; else an error");
  command->add_flag("--margins", options->margins, "Print weighted sums for logistic models too");
  command->footer(
      "Prints a number for each row, in the order of the data: for logistic models the probability of the\n"
      "positive label, else the weighted sum w.x, whose sign is an SVM's answer. Rows begin with a\n"
      "label, as for 'train linear', which is ignored: where there is none, write 0.\n"
      "\n"
      "Examples:\n"
      "  deltawire predict --model a9a.npz --data a9a.t > probabilities.txt\n"
      "  xz -dc test.xz | deltawire predict --model svm.npz --data - > margins.txt\n");
  command->callback([options] { predict(*options); });
}

}  // namespace deltawire::linear
