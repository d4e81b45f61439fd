#include "linear/commands/train_options.h"

#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/number_text.h"
#include "cli/outcome.h"
#include "deltawire/spec.h"
#include "linear/plain_pairs.h"

namespace deltawire::linear {
namespace {

constexpr const char* kAuto = "auto";
constexpr const char* kOwners = "owners";

bool names_pattern(const std::string& codec) {
  if (codec == kPlainPairs) return true;
  const auto spec = Spec::parse(codec);
  return spec && spec->names_pattern;
}

// By itself: a pattern, and a codec that it can have.
cli::Outcome<void> check_pattern(const ExchangeOption& option, const std::string& codec) {
  if (option.pattern != kOwners && option.weights != ExchangeOption().weights) {
    return cli::misused("--weights-codec goes with --exchange owners");
  }
  if (option.pattern == kOwners && !names_pattern(codec)) {
    const Status usable = check_exchange_spec(exchange_spec(option, codec));
    return usable ? cli::Outcome<void>() : cli::misused("--exchange owners: " + usable.error().text());
  }
  if (option.pattern == kAuto || !names_pattern(codec)) return {};
  return cli::misused("--exchange " + option.pattern + ": --codec " + codec +
                      " has a pattern of its own; leave one of them out");
}

std::string in_words(const nlohmann::json& settings, const std::string& name) {
  return settings.contains(name) ? settings[name].dump() : "nothing";
}

// The first setting that differs, but for those that only say when training ends.
std::string difference(const std::string& saved, const std::string& own) {
  const auto then = nlohmann::json::parse(saved, nullptr, false);
  const auto now = nlohmann::json::parse(own, nullptr, false);
  if (!then.is_object()) return "settings that this deltawire does not know";
  auto both = then;
  both.update(now);
  for (const auto& [name, value] : both.items()) {
    if (name == "epochs" || name == "stop_percent" || in_words(then, name) == in_words(now, name)) continue;
    return name + " " + in_words(then, name) + ", and here it is " + in_words(now, name);
  }
  return {};
}

}  // namespace

void add_exchange_option(CLI::App* command, ExchangeOption& option) {
  command
      ->add_option("--exchange", option.pattern,
                   "gather: pairs to all; direct: to owners, who send means back; owners: to owners, who "
                   "step and send weights; auto: gather or direct, by the first batch")
      ->check(CLI::IsMember({kAuto, "gather", "direct", kOwners}))
      ->type_name("PATTERN")
      ->capture_default_str();
  command
      ->add_option("--weights-codec", option.weights,
                   "Codec of the weights that owners send back, with --exchange owners")
      ->type_name("CODEC")
      ->capture_default_str();
  command->add_flag("--feedback", option.feedback, "Error feedback for pairs (not in FastSGD's paper)");
}

cli::Outcome<void> check_exchange(const ExchangeOption& option, const std::string& codec) {
  if (auto fits = check_pattern(option, codec); !fits || !option.feedback) return fits;
  const Status usable = check_feedback(exchange_spec(option, codec));
  return usable ? cli::Outcome<void>() : cli::misused("--feedback: " + usable.error().text());
}

std::string exchange_spec(const ExchangeOption& option, const std::string& codec) {
  if (names_pattern(codec)) return codec;
  if (option.pattern == kOwners) {
    return OwnerSpec{.gradients = codec, .weights = option.weights}.text();
  }
  if (option.pattern == kAuto) return option.feedback ? "gather(" + codec + ")" : std::string();
  return option.pattern + "(" + codec + ")";
}

Status settle_exchange(ExchangeOption& option, const std::string& codec, const TrainSettings& settings,
                       BlockStore& data, Exchange& exchange) {
  if (!exchange_spec(option, codec).empty()) {
    option.choice.spec = exchange.spec();
    option.choice.reason = "as asked";
    return option.feedback ? exchange.keep_losses() : Status();
  }
  auto choice = choose_exchange(codec, settings, data, exchange);
  if (!choice) return forward_error(choice);
  option.choice = *std::move(choice);
  return {};
}

std::string exchange_line(const ExchangeOption& option, int world) {
  if (world == 1) return "one worker: nothing is sent, and no codec is used";
  const ExchangeChoice& choice = option.choice;
  const std::string line = "exchange by " + choice.spec + ": ";
  if (!choice.measured) return line + choice.reason;
  return line + "a rank has " + cli::grouped(static_cast<std::uint64_t>(choice.overlap.own)) +
         " keys in the first batch, all ranks together " +
         cli::grouped(static_cast<std::uint64_t>(choice.overlap.distinct)) + "; direct sends " +
         cli::rounded(direct_to_gather(choice.overlap, world)) + " of gather's bytes";
}

nlohmann::ordered_json exchange_json(const ExchangeOption& option, int world) {
  const ExchangeChoice& choice = option.choice;
  nlohmann::ordered_json all{{"reducer", choice.spec}, {"reason", choice.reason}};
  const auto figure = [&](double number) {
    return choice.measured ? nlohmann::ordered_json(number) : nlohmann::ordered_json(nullptr);
  };
  all["pairs_of_a_rank"] = figure(choice.overlap.own);
  all["distinct_pairs"] = figure(choice.overlap.distinct);
  all["direct_to_gather"] = figure(direct_to_gather(choice.overlap, world));
  return all;
}

void CheckpointOptions::add_to(nlohmann::ordered_json& alike) const {
  alike["checkpoint"] = !folder.empty();
  alike["every"] = every;
  alike["resume"] = resume;
}

std::string with_resume_hint(const Error& error, const CheckpointOptions& options) {
  const bool lost_a_rank = error.code == ErrorCode::kTimeout || error.code == ErrorCode::kPeerLost ||
                           error.code == ErrorCode::kAborted;
  return error.text() +
         (lost_a_rank && !options.folder.empty() ? "; start all ranks with --resume to go on" : "");
}

std::string lost_model_hint(const CheckpointOptions& options) {
  return options.folder.empty() ? "; make room, and train again" : "; make room, and go on with --resume";
}

std::string interrupted_line(const CheckpointOptions& options) {
  return std::string("interrupted: no model is written") +
         (options.folder.empty() ? "" : "; --resume goes on from the last checkpoint, if there is one");
}

void add_checkpoint_options(CLI::App* command, CheckpointOptions& options) {
  CLI::Option* folder =
      command->add_option("--checkpoint", options.folder, "Write checkpoints to this folder")
          ->type_name("DIR");
  command->add_option("--every", options.every, "Steps between checkpoints; default: one data epoch")
      ->transform(cli::count_range(1))
      ->needs(folder)
      ->type_name("N");
  command->add_flag("--resume", options.resume, "Resume from the newest checkpoint that all workers have")
      ->needs(folder);
}

std::optional<Checkpoints> open_checkpoints(const CheckpointOptions& options, const std::string& training,
                                            bool force, const Exchange& exchange) {
  if (options.folder.empty()) return std::nullopt;
  CheckpointSettings settings{.folder = options.folder,
                              .every = options.every,
                              .resume = options.resume,
                              .force = force,
                              .training = training,
                              .difference = {},
                              .tell = {}};
  settings.difference = [training](const std::string& saved) { return difference(saved, training); };
  settings.tell = [](const std::string& line) { cli::print_failure(line); };
  return Checkpoints(std::move(settings), exchange.rank(), exchange.world());
}

}  // namespace deltawire::linear
