// deltawire trace info FOLDER, deltawire trace replay FOLDER: recorded gradients (docs/reference/traces.md).
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/measure/replay.h"
#include "cli/number_text.h"
#include "cli/progress.h"
#include "cli/trace/trace.h"

namespace deltawire::cli {
namespace {

using TraceOutput = nlohmann::ordered_json;

// Text of a trace may be no UTF-8 where a path is; JSON must be.
void print_json(const TraceOutput& json, int indent) {
  std::cout << json.dump(indent, ' ', false, TraceOutput::error_handler_t::replace) << "\n";
}

TraceOutput facts_json(const GradientFacts& facts) {
  return {{"gradients", facts.gradients},   {"values", facts.values},
          {"pairs", facts.pairs},           {"zero_share", facts.zero_share()},
          {"largest", facts.largest},       {"norm", facts.norm()},
          {"not_finite", facts.not_finite}, {"with_significance", facts.with_significance}};
}

TraceOutput info_json(const Trace& trace, const TraceFacts& facts) {
  TraceOutput tensors = TraceOutput::array();
  for (std::size_t i = 0; i < trace.tensors.size(); ++i) {
    TraceOutput tensor{{"name", trace.tensors[i].name},
                       {"shape", trace.tensors[i].shape},
                       {"elements", trace.tensors[i].elements},
                       {"pairs_form", trace.tensors[i].pairs}};
    tensor.update(facts_json(facts.of_tensor(i)));
    tensors.push_back(std::move(tensor));
  }
  TraceOutput steps = TraceOutput::array();
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    TraceOutput of_tensors = TraceOutput::array();
    for (const GradientFacts& each : facts.of[i]) {
      of_tensors.push_back(each.gradients == 0 ? TraceOutput() : facts_json(each));
    }
    TraceOutput step{{"step", trace.steps[i].step}};
    step.update(facts_json(facts.of_step(i)));
    step["tensors"] = std::move(of_tensors);
    steps.push_back(std::move(step));
  }
  return {{"trace", trace.folder},    {"model", trace.model},          {"optimizer", trace.optimizer},
          {"command", trace.command}, {"tensors", std::move(tensors)}, {"steps", std::move(steps)}};
}

// The figures of a line of either table, behind what it is of.
void print_facts(const std::string& of, std::size_t width, const GradientFacts& facts) {
  char line[160];
  std::snprintf(line, sizeof line, " %15s %9.4f %% %11s %11s %10s%s", grouped(facts.values).c_str(),
                100 * facts.zero_share(), rounded(facts.largest).c_str(), rounded(facts.norm()).c_str(),
                grouped(facts.not_finite).c_str(), facts.with_significance > 0 ? "  significance" : "");
  std::cout << of << std::string(width - std::min(width, of.size()), ' ') << line;
  if (facts.pairs > 0) std::cout << "  " << grouped(facts.pairs) << " pairs";
  std::cout << "\n";
}

void print_head(const std::string& of, std::size_t width) {
  std::cout << "\n"
            << of << std::string(width - of.size(), ' ')
            << "          values       zeros     largest        norm NaN or Inf\n";
}

void print_info(const Trace& trace, const TraceFacts& facts) {
  std::cout << printable_line(trace.folder) << ": " << grouped(trace.tensors.size()) << " tensors, "
            << grouped(trace.steps.size()) << " steps\n";
  const std::pair<const char*, const std::string&> words[] = {
      {"model", trace.model}, {"optimizer", trace.optimizer}, {"command", trace.command}};
  for (const auto& [field, text] : words) {
    if (!text.empty()) std::cout << "  " << field << ": " << printable_line(text) << "\n";
  }
  std::vector<std::string> names;
  std::size_t width = 16;
  for (const TraceTensor& tensor : trace.tensors) {
    names.push_back(printable_line(tensor.name) + " " + shape_text(tensor.shape));
    width = std::max(width, names.back().size());
  }
  print_head("all steps", width);
  for (std::size_t i = 0; i < names.size(); ++i) print_facts(names[i], width, facts.of_tensor(i));
  print_head("all tensors", width);
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    print_facts("step " + std::to_string(trace.steps[i].step), width, facts.of_step(i));
  }
}

Outcome<void> info(const std::string& folder, bool json) {
  const auto trace = open_trace(folder);
  if (!trace) return tl::unexpected<Failure>(trace.error());
  const auto facts = facts_of(*trace);
  if (!facts) return tl::unexpected<Failure>(facts.error());
  if (json) {
    print_json(info_json(*trace, *facts), 2);
  } else {
    print_info(*trace, *facts);
  }
  return {};
}

struct ReplayOptions {
  std::string folder;
  std::string codec;
  int ranks = 1;
  std::uint64_t min_elements = Policy{}.min_elements;
  bool json = false;
};

TraceOutput replayed_json(std::uint64_t step, const ReplayedStep& done) {
  return {{"step", step},
          {"bytes", done.bytes},
          {"values", done.values},
          {"bits_per_value", 8 * static_cast<double>(done.bytes) / static_cast<double>(done.values)},
          {"relative_l2", done.errors.relative_l2()},
          {"cosine", done.errors.cosine()},
          {"max_error", done.errors.max_error()},
          {"bias", done.errors.bias()},
          {"relative_l2_so_far", done.so_far},
          {"residual_norm", done.residual_norm},
          {"input_norm", done.errors.input_norm()}};
}

void print_replayed(std::uint64_t step, const ReplayedStep& done) {
  const FileSize size{done.values, 4 * done.values, done.bytes};
  char line[160];
  std::snprintf(line, sizeof line, "%10llu %13s %11s %10s %9s %11s %13s\n",
                static_cast<unsigned long long>(step), grouped(done.bytes).c_str(),
                rounded(size.bits_per_value()).c_str(), rounded(size.times_smaller()).c_str(),
                rounded(done.errors.relative_l2()).c_str(), rounded(done.so_far).c_str(),
                rounded(done.residual_norm / std::max(done.errors.input_norm(), 1e-300)).c_str());
  std::cout << line;
}

// The steps that were not reached stay out of what is returned.
Outcome<TraceOutput> replay_steps(const Trace& trace, const ReplayOptions& options, Replay& replay) {
  TraceOutput steps = TraceOutput::array();
  for (std::size_t i = 0; i < trace.steps.size() && !interrupted(); ++i) {
    const auto step = input_step(trace, i);
    if (!step) return tl::unexpected<Failure>(step.error());
    if (step->values() == 0) continue;
    const auto done = replay.take(*step, step->step);
    if (!done) return failed("step " + std::to_string(step->step) + ": " + done.error().message);
    if (!options.json) print_replayed(step->step, *done);
    steps.push_back(replayed_json(step->step, *done));
  }
  return steps;
}

Outcome<void> replay(const ReplayOptions& options) {
  auto made = Replay::make(options.codec, Policy{options.min_elements}, options.ranks);
  if (!made) return misused("--codec \"" + options.codec + "\": " + made.error().message);
  const auto trace = open_trace(options.folder);
  if (!trace) return tl::unexpected<Failure>(trace.error());
  if (!options.json) {
    std::cout << printable_line(trace->folder) << " by " << made->channel().spec() << "\n\n"
              << "      step         bytes  bits/value  x smaller   rel. L2 L2 of sums      residual\n";
  }
  catch_interrupts();
  auto steps = replay_steps(*trace, options, *made);
  if (!steps) return tl::unexpected<Failure>(steps.error());
  const std::size_t done = steps->size();
  if (options.json) {
    print_json({{"trace", trace->folder},
                {"spec", made->channel().spec()},
                {"ranks", options.ranks},
                {"min_elements", options.min_elements},
                {"steps", std::move(*steps)}},
               2);
  }
  if (!interrupted()) return {};
  return tl::unexpected<Failure>(Failure{kExitInterrupted, "interrupted: " + std::to_string(done) + " of " +
                                                               std::to_string(trace->steps.size()) +
                                                               " steps were replayed"});
}

void add_info_command(CLI::App& trace, Command& chosen) {
  CLI::App* command = trace.add_subcommand("info", "Show tensors, steps, zeros, largest values and norms");
  const auto folder = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("FOLDER", *folder, "The trace")->required();
  command->add_flag("--json", *json, "Print JSON for programs, each tensor in each step");
  command->footer(
      "Reads every file, and so finds out whether the trace is whole.\n\n"
      "Examples:\n"
      "  deltawire trace info trace/\n"
      "  deltawire trace info trace/ --json | jq '.steps[] | {step, norm}'\n");
  command->callback([&chosen, folder, json] { chosen = [folder, json] { return info(*folder, *json); }; });
}

void add_replay_command(CLI::App& trace, Command& chosen) {
  CLI::App* command =
      trace.add_subcommand("replay", "Replay a trace's steps through a codec with error feedback");
  const auto options = std::make_shared<ReplayOptions>();
  command->add_option("FOLDER", options->folder, "The trace")->required();
  command->add_option("--codec", options->codec, "Codec and parameters, or rules (quoted, as one word)")
      ->required()
      ->type_name("SPEC");
  command
      ->add_option("--ranks", options->ranks, "Ranks that all send these gradients; the output is their mean")
      ->transform(count_range(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  add_min_elements_option(*command, options->min_elements);
  command->add_flag("--json", options->json, "Print JSON for programs");
  command->footer(
      "For each step: the bytes of a rank's message; the relative L2 error of the output against the\n"
      "step's gradients; the same for the sums over all steps so far, which error feedback keeps small;\n"
      "and the norm of the residual, relative to the gradients'. All ranks send the same gradients, as a\n"
      "trace has those of one rank. They differ only with stochastic codecs.\n"
      "\n"
      "Examples:\n"
      "  deltawire trace replay trace/ --codec 3lc:s=1.75\n"
      "  deltawire trace replay trace/ --codec 'conv*: 3lc, rest bf16' --json | jq '.steps[].bytes'\n");
  command->callback([&chosen, options] { chosen = [options] { return replay(*options); }; });
}

}  // namespace

void add_trace_command(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("trace", "Inspect or replay recorded gradients");
  command->require_subcommand(1);
  command->footer(
      "A trace is a folder with gradients of a training run (docs/reference/traces.md). 'deltawire compare' "
      "takes\n"
      "one too.\n"
      "\n"
      "Examples:\n"
      "  deltawire trace info trace/\n"
      "  deltawire trace replay trace/ --codec 3lc\n"
      "Run 'deltawire trace info --help' or 'deltawire trace replay --help' for more.\n");
  add_info_command(*command, chosen);
  add_replay_command(*command, chosen);
}

}  // namespace deltawire::cli
