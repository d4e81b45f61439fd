// deltawire plan: which codec to use, how much faster it is, or that none pays.
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/arrays/byte_source.h"
#include "cli/commands.h"
#include "cli/measure/input.h"
#include "cli/output_file.h"
#include "cli/plan/figures.h"
#include "cli/plan/report.h"
#include "cli/plan/sites.h"
#include "cli/progress.h"
#include "deltawire/workers.h"

namespace deltawire::cli {
namespace {

struct PlanCommandOptions {
  std::string input;
  std::string figures;
  std::uint64_t parameters = 0;
  // Those that trained as well as float32 in docs/results/training.md; others have to be named.
  std::vector<std::string> codecs{
      "gcomp:lossless=on", "zstd", "gcomp", "bf16", "int8", "fp8", "qsgd", "3lc", "terngrad", "natural"};
  std::string optimizer;
  std::string ranks = "4";
  std::string link;
  std::string tier{tier_name(PlanOptions{}.tier)};
  double compute_ms = 0;
  std::vector<double> ready_ms;
  double bucket_mb = 25;
  double cores = 0;
  int threads = 1;
  double least_gain = 3;
  double seconds = 0.1;
  std::uint64_t min_elements = Policy{}.min_elements;
  bool quick = false;
  bool quiet = false;
  std::string json;
  bool force = false;
};

// A model with only its size known: tensors of at most 2^20 values, like layers, or 512 longer ones.
std::vector<PlanTensor> model_of_size(std::uint64_t parameters) {
  const std::uint64_t most = std::max(std::uint64_t{1} << 20, (parameters + 511) / 512);
  std::vector<PlanTensor> tensors;
  for (std::uint64_t at = 0; at < parameters; at += most) {
    tensors.push_back({"layer" + std::to_string(tensors.size()), std::min(most, parameters - at)});
  }
  return tensors;
}

// The tensors and the figures that the report is of.
struct Material {
  std::vector<PlanTensor> tensors;
  std::vector<CodecFigures> codecs;
};

void read_figures(const PlanCommandOptions& options, Material& material) {
  const auto bytes = read_input(options.figures);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  auto file = parse_figures(text, input_name(options.figures));
  material.codecs = std::move(file.codecs);
  if (material.tensors.empty()) material.tensors = std::move(file.tensors);
  if (material.tensors.empty()) {
    throw misused("--figures " + options.figures + ": names no tensors; give --input as well");
  }
}

void measure_codecs(const PlanCommandOptions& options, const std::vector<Candidate>& candidates,
                    const Input& input, Material& material, PlanReport& report) {
  const Input cut = cut_for_exchange(input, options.parameters);
  const Policy policy{.min_elements = options.min_elements};
  const double seconds = options.quick ? 0.02 : options.seconds;
  Progress progress;
  catch_interrupts();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::string place =
        "[" + std::to_string(i + 1) + "/" + std::to_string(candidates.size()) + "] " + candidates[i].text;
    if (!options.quiet) progress.show_stage(place);
    std::optional<CodecFigures> figures;
    try {
      figures = measure_figures(candidates[i], cut, policy, seconds);
    } catch (const Failure& refusal) {
      report.refused.push_back(refusal.message);
      continue;
    }
    if (!figures) throw Failure{kExitInterrupted, "interrupted: nothing is planned"};
    material.codecs.push_back(*std::move(figures));
  }
  if (!material.codecs.empty()) return;
  throw failed("no codec takes these values: " + report.refused.front());
}

Material gather_material(const PlanCommandOptions& options, PlanReport& report) {
  const auto candidates = candidates_of(options.codecs, options.optimizer);
  Material material;
  report.figures = "measured on this machine, on these values";
  report.input = input_name(options.input.empty() ? options.figures : options.input);
  if (options.parameters > 0) {
    material.tensors = model_of_size(options.parameters);
    report.input = "a model of that size";
    report.figures = "measured on this machine, on " + input_name(options.input);
  }
  std::optional<Input> input;
  if (!options.input.empty()) input = load_input(options.input, options.quick);
  if (input && material.tensors.empty()) material.tensors = tensors_of(*input);
  if (options.figures.empty()) {
    measure_codecs(options, candidates, *input, material, report);
  } else {
    read_figures(options, material);
    report.figures = "from " + input_name(options.figures);
  }
  return material;
}

Workload workload_of(const PlanCommandOptions& options, const std::vector<PlanTensor>& tensors) {
  const auto bucket_bytes = static_cast<std::uint64_t>(options.bucket_mb * 1048576);
  Workload workload = ddp_workload(tensors, 1e-3 * options.compute_ms, bucket_bytes);
  if (options.ready_ms.empty()) return workload;
  if (options.ready_ms.size() != workload.buckets.size()) {
    throw misused("--ready-ms names " + std::to_string(options.ready_ms.size()) + " buckets; there are " +
                  std::to_string(workload.buckets.size()));
  }
  for (std::size_t i = 0; i < options.ready_ms.size(); ++i) {
    workload.buckets[i].ready_seconds = 1e-3 * options.ready_ms[i];
  }
  return workload;
}

// What is planned for: each number of ranks on each link.
struct Sites {
  std::vector<int> ranks;
  std::vector<LinkRates> links;
};

void make_plans(const PlanCommandOptions& options, const Sites& sites,
                const std::vector<CodecFigures>& codecs, PlanReport& report) {
  Progress progress;
  for (const int count : sites.ranks) {
    for (const LinkRates& link : sites.links) {
      if (!options.quiet) progress.show("planning for " + std::to_string(count) + " ranks");
      Site site{count, link, {}};
      site.machine.cores = options.cores > 0 ? options.cores : Workers::processors();
      site.machine.coding_threads = options.threads;
      report.plans.push_back(
          {site, value_or_misused(make_plan(report.workload, site, codecs, report.options))});
    }
  }
}

// Checks that need no measurement.
Sites check_request(const PlanCommandOptions& options) {
  if (options.input.empty() && options.figures.empty() && options.parameters == 0) {
    throw misused(
        "plan: give --input, a model's gradients, --parameters, its size, or --figures, an earlier plan's; "
        "see 'deltawire plan --help'");
  }
  const bool chooses = !options.optimizer.empty() || options.codecs != PlanCommandOptions{}.codecs;
  if (chooses && !options.figures.empty())
    throw misused("--figures has its own codecs and optimizer; leave out --codecs and --optimizer");
  const Sites sites{parse_ranks(options.ranks), parse_links(options.link)};
  check_outputs({options.json}, options.force, {options.input, options.figures});
  return sites;
}

PlanReport make_report(PlanCommandOptions options, const Sites& sites) {
  if (options.parameters > 0 && options.input.empty() && options.figures.empty()) {
    options.input = "synthetic:normal";
  }
  PlanReport report;
  report.options = {*find_tier(options.tier), options.least_gain / 100};
  const auto material = gather_material(options, report);
  report.workload = workload_of(options, material.tensors);
  make_plans(options, sites, material.codecs, report);
  return report;
}

void plan(const PlanCommandOptions& options) {
  const auto sites = check_request(options);
  const auto report = make_report(options, sites);
  if (options.json != "-") std::cout << plan_text(report) << "\n" << assumptions_text(report);
  write_output(options.json, plan_json(report), options.force);
}

std::string plan_footer() {
  return "Chooses before training: which codec, how much faster, or not to compress. Measures codecs on\n"
         "your gradients, on this machine, and simulates the exchange on the given link. Nothing is sent.\n"
         "\n" +
         rule_of_thumb() +
         "\n"
         "\n"
         "INPUT is a trace folder (docs/reference/traces.md), a .npy file as encode takes it, a .dw file, - "
         "for\n"
         "a .npy on standard input, or synthetic:NAME; 'deltawire compare --help' lists the names. Without "
         "it,\n"
         "--parameters uses normally distributed values, so that nothing has to be recorded; 23.6m is\n"
         "23,600,000, 7b is 7,000,000,000. Real gradients may take fewer bits: 3lc and gcomp do.\n"
         "CODECS are specs, rules (quoted, as one word), either of them in a pattern, or all. The default\n"
         "is a choice that trained as well as float32 in docs/results/training.md. No plan can know how much "
         "error\n"
         "your training tolerates: name the codecs that you would accept. Standard error shows the one\n"
         "being measured.\n"
         "LINK is a rate, with optional latency one way: 100mbit, 100mbit,20ms; down/up: 100mbit/20mbit;\n"
         "or a range: 10mbit..10gbit,1ms.\n"
         "\n"
         "loses        lossless: nothing. near-lossless: a relative L2 error of at most 1/256, or what\n"
         "             gcomp drops because the optimizer cannot see it. lossy: more; error feedback sends\n"
         "             it later\n"
         "enc, dec ns  nanoseconds per value, on one thread, with frames and checksums\n"
         "ms a step    predicted; at least --compute-ms. wire ms: the busier direction of the link.\n"
         "             coding ms: processor time of a rank\n"
         "x plain      the step of plain divided by this one; plain is the native ring all-reduce of\n"
         "             float32\n"
         "pays below   the bandwidth above which the codec saves less than --least-gain; never: it saves\n"
         "             less on slow links too; above a rate: it saves latency, not bytes; always: on\n"
         "             no link\n"
         "*            the choice: the shortest step that --tier allows; among steps within 5 % the least\n"
         "             lossy, then the one with the fewest bytes. Plain if it saves less than --least-gain\n"
         "\n"
         "Examples:\n"
         "  deltawire plan --input trace/ --ranks 4 --link 100mbit --compute-ms 28\n"
         "  deltawire plan --parameters 10m --ranks 8 --link 50mbit,1ms --compute-ms 300\n"
         "  deltawire plan --input gradient.npy --link 1gbit,0.5ms --tier lossy --json plan.json\n"
         "  deltawire plan --figures plan.json --ranks 4..1024 --link 10gbit\n"
         "  deltawire plan --figures plan.json --link 10mbit..100gbit\n";
}

void add_place(CLI::App* command, PlanCommandOptions& options) {
  add_value(*command, "--ranks N", options.ranks, "4; 4,8,64; or 4..1024, doubling");
  add_value(*command, "--link LINK", options.link,
            "The link of each rank: 100mbit, 100mbit,20ms, 10mbit..10gbit")
      ->required();
  add_value(*command, "--compute-ms MS", options.compute_ms,
            "Forward and backward; communication that overlaps with them is hidden")
      ->check(number_range(0, 1e9))
      ->capture_default_str();
  add_value(*command, "--ready-ms MS,MS", options.ready_ms,
            "When each bucket of DDP is ready, from the start of the step: 12,26")
      ->delimiter(',')
      ->check(number_range(0, 1e9));
  add_value(*command, "--bucket-mb MB", options.bucket_mb, "DDP's bucket_cap_mb; the first bucket has 1")
      ->check(number_range(0.001, 1e6));
  add_value(*command, "--cores N", options.cores, "Cores of a rank; default: those that this process may use")
      ->check(number_range(0.01, 4096));
  add_value(*command, "--threads N", options.threads, "Threads that encode and decode")
      ->transform(count_range(1, 64));
}

}  // namespace

PlanReport quick_plan(std::uint64_t parameters, int ranks, const LinkRates& link, const std::string& tier) {
  PlanCommandOptions options;
  options.parameters = parameters;
  options.tier = tier;
  options.quick = options.quiet = true;
  return make_report(std::move(options), {{ranks}, {link}});
}

void add_plan_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("plan", "Plan which codec to use for a link and a number of ranks, or none");
  const auto options = std::make_shared<PlanCommandOptions>();
  add_value(*command, "--input INPUT", options->input, "The model's gradients");
  add_value(*command, "--parameters N", options->parameters,
            "Size of the model; --input then only has similar values")
      ->transform(count_range(1, std::uint64_t{1} << 40));
  add_value(*command, "--figures FILE", options->figures, "Reuse the figures of an earlier plan's --json");
  add_value(*command, "--codecs CODECS", options->codecs,
            "Codecs to choose from: all, or specs separated by spaces");
  add_value(*command, "--optimizer NAME", options->optimizer,
            "Of the training, by its class: AdamW. What does not go with it is left out");
  add_value(*command, "--tier TIER", options->tier, "How much may be lost")
      ->check(CLI::IsMember({"lossless", "near-lossless", "lossy"}));
  add_value(*command, "--least-gain P", options->least_gain, "Percent of a step that a codec must save")
      ->check(number_range(0, 99));
  add_place(command, *options);
  add_value(*command, "--seconds S", options->seconds, "Seconds of timing for each codec")
      ->check(number_range(0, 3600));
  command->add_flag("--quick", options->quick, "Quick, rough timing; 2^16 synthetic values");
  add_min_elements_option(*command, options->min_elements);
  add_value(*command, "--json FILE", options->json, "Write all figures to FILE; - prints them");
  command->add_flag("--force", options->force, "Replace files that exist");
  command->footer(plan_footer());
  command->callback([options] { plan(*options); });
}

}  // namespace deltawire::cli
