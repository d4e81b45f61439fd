// The options of `deltawire train linear` that say where checkpoints are kept, and the messages about them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "cli/outcome.h"
#include "deltawire/result.h"
#include "linear/checkpoints.h"
#include "linear/exchange.h"

namespace CLI {
class App;
}  // namespace CLI

namespace deltawire::linear {

struct CheckpointOptions {
  std::string folder;  // empty: no checkpoints
  std::uint64_t every = 0;
  bool resume = false;

  // Adds the settings that all ranks must share, or they would wait for each other in vain.
  void add_to(nlohmann::ordered_json& alike) const;
};

// Messages that say how to go on: after an error, after a model that could not be written, after an
// interrupt.
std::string with_resume_hint(const Error& error, const CheckpointOptions& options);
std::string lost_model_hint(const CheckpointOptions& options);
std::string interrupted_line(const CheckpointOptions& options);

void add_checkpoint_options(CLI::App* command, CheckpointOptions& options);

// The checkpoints of this rank; none without a folder. `training`: the settings that determine the steps, as
// JSON. `force`: may replace checkpoints of an earlier training.
std::optional<Checkpoints> open_checkpoints(const CheckpointOptions& options, const std::string& training,
                                            bool force, const Exchange& exchange);

}  // namespace deltawire::linear
