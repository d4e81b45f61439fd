#include "linear/commands/checkpoint_options.h"

#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/outcome.h"

namespace deltawire::linear {
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
