// What 'deltawire train linear' takes of checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "deltawire/result.h"
#include "linear/checkpoints.h"

namespace CLI {
class App;
}

namespace deltawire::cli {

struct CheckpointOptions {
  std::string folder;  // empty: none are kept
  std::uint64_t every = 0;
  bool resume = false;

  // Ranks that differ in this would wait for each other in vain.
  void add_to(nlohmann::ordered_json& alike) const;
};

// What to do, said where a training has failed, or its end could not be written.
std::string with_way_on(const Error& error, const CheckpointOptions& options);
std::string after_lost_model(const CheckpointOptions& options);

// What is said where a training is interrupted.
std::string interrupted_line(const CheckpointOptions& options);

void add_checkpoint_options(CLI::App* command, CheckpointOptions& options);

// Of this rank; none where there is no folder. `training`: the JSON text of what makes its steps. `force`:
// checkpoints of an earlier training may go.
std::optional<linear::Checkpoints> open_checkpoints(const CheckpointOptions& options,
                                                    const std::string& training, bool force,
                                                    const linear::Exchange& exchange);

}  // namespace deltawire::cli
