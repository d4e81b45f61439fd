// deltawire compare: every method on the same input.
#include <cstddef>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/measure/input.h"
#include "cli/measure/rows.h"
#include "cli/output_file.h"
#include "cli/progress.h"

namespace deltawire::cli {
namespace {

struct CompareOptions {
  std::vector<std::string> inputs;
  std::vector<std::string> codecs{"all"};
  std::string sort;
  std::string json;
  double seconds = 0.3;
  std::uint64_t min_elements = Policy{}.min_elements;
  bool quick = false;
  bool force = false;
};

MeasureOptions measure_options(const CompareOptions& options) {
  MeasureOptions measure;
  measure.policy.min_elements = options.min_elements;
  measure.seconds = options.quick ? 0.02 : options.seconds;
  if (options.quick) measure.streams = 2;
  return measure;
}

void measure_all(const std::vector<Method>& methods, Report& report) {
  Progress progress;
  const std::size_t due = methods.size() * report.inputs.size();
  for (const Input& input : report.inputs) {
    for (const Method& method : methods) {
      const std::string place = "[" + std::to_string(report.rows.size() + 1) + "/" + std::to_string(due) +
                                "] " + method.spec + ": ";
      auto row = measure_method(method, input, report.options,
                                [&](const char* stage) { progress.show(place + stage); });
      if (!row) {
        report.interrupted = true;
        return;
      }
      report.rows.push_back(std::move(*row));
    }
  }
}

void print_tables(const Report& report) {
  for (const Input& input : report.inputs) {
    std::vector<Row> rows;
    for (const Row& row : report.rows) {
      if (row.input == input.name) rows.push_back(row);
    }
    if (rows.empty()) continue;
    std::cout << text_table(input, rows) << "\n";
  }
  if (!report.rows.empty()) std::cout << table_legend();
}

void compare(const CompareOptions& options) {
  const auto methods = methods_of(options.codecs);
  check_outputs({options.json}, options.force, options.inputs);
  Report report;
  report.options = measure_options(options);
  std::set<std::string> loaded;
  for (const std::string& text : options.inputs) {
    if (loaded.insert(text).second) report.inputs.push_back(load_input(text, options.quick));
  }
  catch_interrupts();
  measure_all(methods, report);
  if (!options.sort.empty()) sort_rows(report.rows, options.sort);
  if (options.json != "-") print_tables(report);
  write_output(options.json, json_of(report), options.force);
  if (!report.interrupted) return;
  throw Failure{kExitInterrupted, "interrupted: " + std::to_string(report.rows.size()) + " of " +
                                      std::to_string(methods.size() * report.inputs.size()) +
                                      " rows were measured, and are kept"};
}

std::string compare_footer() {
  return "INPUT is a trace folder (docs/reference/traces.md), a .npy file as encode takes it, a .dw file, - "
         "for\n"
         "a .npy on standard input, or synthetic:NAME, of 2^20 values from a fixed seed\n"
         "(synthetic:NAME:n=65536,seed=7 for others), where NAME is one of\n" +
         synthetic_names() +
         "\nCODECS are specs, rules (quoted, as one word), or all: every codec and its examples.\n"
         "\n"
         "bits/value   size of the whole message, with frames, checksums and the codec's scalars\n"
         "x smaller    than float32; tensors recorded as pairs count with all their elements\n"
         "rel. L2      ||decoded - input|| / ||input|| of one message, without error feedback\n"
         "cosine       of the angle between decoded and input; max error: the largest |decoded - input|\n"
         "bias         mean(decoded - input) / mean|input|; for stochastic methods, the mean of 8 streams\n"
         "after 20     relative L2 of the sum of the outputs of 20 steps, against the sum of the inputs,\n"
         "             with error feedback. The 20 steps are the input repeated, or a trace's steps in turn\n"
         "GB/s         of float32 values per processor time, on one thread, with frames and checksums;\n"
         "             xC: relative to copying the same values. Of the first step; medians\n"
         "\n"
         "If a method refuses an input, its row says why. Ctrl-C keeps the rows measured so far.\n"
         "\n"
         "Examples:\n"
         "  deltawire compare --input synthetic:heavy-tail --sort relative_l2\n"
         "  deltawire compare --input trace/ --codecs 3lc:s=1.75 sbc:p=1% 'conv*: 3lc, rest bf16'\n"
         "  deltawire compare --input a.npy --input b.npy --json rows.json\n"
         "  deltawire compare --input a.npy --json - | jq -r '.rows[] | [.method, .bits_per_value] | @csv'\n";
}

}  // namespace

void add_compare_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("compare", "Compare methods: bytes, errors and speed on your gradients");
  const auto options = std::make_shared<CompareOptions>();
  add_value(*command, "--input INPUT", options->inputs, "Gradients to encode; may be given several times")
      ->required()
      ->expected(1)
      ->take_all();
  add_value(*command, "--codecs CODECS", options->codecs, "The methods: all, or specs separated by spaces");
  std::vector<std::string> keys;
  for (const Column& column : columns()) keys.emplace_back(column.key);
  add_value(*command, "--sort FIGURE", options->sort,
            "Sort by a figure, best first; names as in JSON: bits_per_value, ...")
      ->check(CLI::IsMember(keys).description(""));
  add_value(*command, "--seconds S", options->seconds, "Seconds of timing for each method and input")
      ->check(number_range(0, 3600));
  command->add_flag("--quick", options->quick, "Quick, rough timing; 2 streams; 2^16 synthetic values");
  add_min_elements_option(*command, options->min_elements);
  add_value(*command, "--json FILE", options->json, "Write all figures to FILE; - prints them");
  command->add_flag("--force", options->force, "Replace files that exist");
  command->footer(compare_footer());
  command->callback([options] { compare(*options); });
}

}  // namespace deltawire::cli
