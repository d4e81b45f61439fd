// --exchange: who sends gradients to whom.
#pragma once

#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>

#include "cli/outcome.h"
#include "linear/exchange_choice.h"

namespace deltawire::cli {

struct ExchangeOption {
  std::string pattern = "auto";   // as asked for
  std::string weights = "fp32";   // with owners: the codec that weights travel back by
  bool feedback = false;          // what the codec leaves out is sent later
  linear::ExchangeChoice choice;  // what came of it
};

void add_exchange_option(CLI::App* command, ExchangeOption& option);

// Refuses --feedback where nothing can wait (Exchange::check_feedback), a pattern beside a codec that names
// one, as direct(fp32) does, and codecs that owners don't take.
Outcome<void> check_exchange(const ExchangeOption& option, const std::string& codec);

// For Exchange::open: empty where the data are to be asked first, by settle_exchange.
std::string exchange_spec(const ExchangeOption& option, const std::string& codec);

// Ends with an exchange that has started, and says in `option` how. Errors: those of choose_exchange.
Status settle_exchange(ExchangeOption& option, const std::string& codec,
                       const linear::TrainSettings& settings, linear::BlockStore& data,
                       linear::Exchange& exchange);

// One line for people.
std::string exchange_line(const ExchangeOption& option, int world);

// {"reducer": ..., "reason": ..., "pairs_of_a_rank": ..., "distinct_pairs": ..., "direct_to_gather": ...};
// the last three are null where nothing was measured.
nlohmann::ordered_json exchange_json(const ExchangeOption& option, int world);

}  // namespace deltawire::cli
