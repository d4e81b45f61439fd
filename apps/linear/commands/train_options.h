// Groups of options of `deltawire train linear`: --exchange and --checkpoint, with what belongs to each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "cli/outcome.h"
#include "deltawire/result.h"
#include "linear/checkpoints.h"
#include "linear/exchange_choice.h"
#include "linear/trainer.h"

namespace CLI {
class App;
}  // namespace CLI

namespace deltawire::linear {

struct ExchangeOption {
  std::string pattern = "auto";  // as given
  std::string weights = "fp32";  // with owners: the codec of the weights sent back
  bool feedback = false;         // error feedback for pairs
  ExchangeChoice choice;         // the result of settle_exchange
};

void add_exchange_option(CLI::App* command, ExchangeOption& option);

// Refuses a pattern together with a codec that names one, as direct(fp32) does; codecs that owners do not
// support; and --feedback without residuals to keep (check_feedback).
cli::Outcome<void> check_exchange(const ExchangeOption& option, const std::string& codec);

// The spec for Exchange::open; empty if settle_exchange has to choose it by the data.
std::string exchange_spec(const ExchangeOption& option, const std::string& codec);

// Starts the exchange if it has not started, and sets option.choice. Errors: those of choose_exchange.
Status settle_exchange(ExchangeOption& option, const std::string& codec, const TrainSettings& settings,
                       BlockStore& data, Exchange& exchange);

// One line for people.
std::string exchange_line(const ExchangeOption& option, int world);

// {"reducer": ..., "reason": ..., "pairs_of_a_rank": ..., "distinct_pairs": ..., "direct_to_gather": ...};
// the last three are null unless measured.
nlohmann::ordered_json exchange_json(const ExchangeOption& option, int world);

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
