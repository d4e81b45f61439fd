#include "linear/commands/checkpoint_options.h"

#include <iostream>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/outcome.h"

namespace deltawire::cli {
namespace {

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

void CheckpointOptions::add_to(nlohmann::ordered_json& alike) const {
  alike["checkpoint"] = !folder.empty();
  alike["every"] = every;
  alike["resume"] = resume;
}

std::string with_way_on(const Error& error, const CheckpointOptions& options) {
  const bool lost_a_rank = error.code == ErrorCode::kTimeout || error.code == ErrorCode::kPeerLost ||
                           error.code == ErrorCode::kAborted;
  return error.message +
         (lost_a_rank && !options.folder.empty() ? "; start all ranks with --resume to go on" : "");
}

std::string after_lost_model(const CheckpointOptions& options) {
  return options.folder.empty() ? "; make room, and train again" : "; make room, and go on with --resume";
}

std::string interrupted_line(const CheckpointOptions& options) {
  return std::string("interrupted: no model is written") +
         (options.folder.empty() ? "" : "; --resume goes on from the last checkpoint, if there is one");
}

void add_checkpoint_options(CLI::App* command, CheckpointOptions& options) {
  CLI::Option* folder =
      command->add_option("--checkpoint", options.folder, "Keep what is needed to go on in this folder")
          ->type_name("DIR");
  command->add_option("--every", options.every, "Steps from one checkpoint to the next; else a data epoch's")
      ->check(CLI::PositiveNumber.description(""))
      ->needs(folder)
      ->type_name("N");
  command->add_flag("--resume", options.resume, "Go on from the newest checkpoint that all workers have")
      ->needs(folder);
}

std::optional<linear::Checkpoints> open_checkpoints(const CheckpointOptions& options,
                                                    const std::string& training, bool force,
                                                    const linear::Exchange& exchange) {
  if (options.folder.empty()) return std::nullopt;
  linear::CheckpointSettings settings{.folder = options.folder,
                                      .every = options.every,
                                      .resume = options.resume,
                                      .force = force,
                                      .training = training,
                                      .difference = {},
                                      .tell = {}};
  settings.difference = [training](const std::string& saved) { return difference(saved, training); };
  settings.tell = [](const std::string& line) { print_failure(line); };
  return linear::Checkpoints(std::move(settings), exchange.rank(), exchange.world());
}

}  // namespace deltawire::cli
