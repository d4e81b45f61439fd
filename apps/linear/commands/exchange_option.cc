#include "linear/commands/exchange_option.h"

#include <cstdint>

#include <nlohmann/json.hpp>

#include "cli/number_text.h"
#include "linear/plain_pairs.h"

namespace deltawire::cli {
namespace {

constexpr const char* kAuto = "auto";
constexpr const char* kOwners = "owners";

bool names_pattern(const std::string& codec) {
  return codec.find('(') != std::string::npos || codec.starts_with("powersgd") ||
         codec == linear::kPlainPairs;
}

}  // namespace

void add_exchange_option(CLI::App* command, ExchangeOption& option) {
  command
      ->add_option("--exchange", option.pattern,
                   "gather: pairs go to all; direct: to owners, who send means; owners: who step and "
                   "send weights; auto: of the first two, by the first batch")
      ->check(CLI::IsMember({kAuto, "gather", "direct", kOwners}))
      ->type_name("")
      ->capture_default_str();
  command
      ->add_option("--weights-codec", option.weights, "What weights travel back by, with --exchange owners")
      ->type_name("CODEC")
      ->capture_default_str();
  command->add_flag("--feedback", option.feedback,
                    "Send later what the codec leaves out of pairs (not in FastSGD's paper)");
}

namespace {

// By itself: a pattern, and a codec that it can have.
Outcome<void> check_pattern(const ExchangeOption& option, const std::string& codec) {
  if (option.pattern != kOwners && option.weights != ExchangeOption().weights) {
    return misused("--weights-codec goes with --exchange owners");
  }
  if (option.pattern == kOwners && !names_pattern(codec)) {
    const Status usable = linear::Exchange::check_spec(exchange_spec(option, codec));
    return usable ? Outcome<void>() : misused("--exchange owners: " + usable.error().message);
  }
  if (option.pattern == kAuto || !names_pattern(codec)) return {};
  return misused("--exchange " + option.pattern + ": --codec " + codec +
                 " has a pattern of its own; leave one of them out");
}

}  // namespace

Outcome<void> check_exchange(const ExchangeOption& option, const std::string& codec) {
  if (auto fits = check_pattern(option, codec); !fits || !option.feedback) return fits;
  const Status usable = linear::Exchange::check_feedback(exchange_spec(option, codec));
  return usable ? Outcome<void>() : misused("--feedback: " + usable.error().message);
}

std::string exchange_spec(const ExchangeOption& option, const std::string& codec) {
  if (names_pattern(codec)) return codec;
  if (option.pattern == kOwners) {
    return linear::OwnerSpec{.gradients = codec, .weights = option.weights}.text();
  }
  if (option.pattern == kAuto) return option.feedback ? "gather(" + codec + ")" : std::string();
  return option.pattern + "(" + codec + ")";
}

Status settle_exchange(ExchangeOption& option, const std::string& codec,
                       const linear::TrainSettings& settings, linear::BlockStore& data,
                       linear::Exchange& exchange) {
  if (!exchange_spec(option, codec).empty()) {
    option.choice.spec = exchange.spec();
    option.choice.reason = "as asked";
    return option.feedback ? exchange.keep_losses() : Status();
  }
  auto choice = linear::choose_exchange(codec, settings, data, exchange);
  if (!choice) return forward_error(choice);
  option.choice = *std::move(choice);
  return {};
}

std::string exchange_line(const ExchangeOption& option, int world) {
  if (world == 1) return "one worker: nothing is sent, and no codec is used";
  const linear::ExchangeChoice& choice = option.choice;
  const std::string line = "exchange by " + choice.spec + ": ";
  if (!choice.measured) return line + choice.reason;
  return line + "a rank has " + grouped(static_cast<std::uint64_t>(choice.overlap.own)) +
         " keys in the first batch, all ranks together " +
         grouped(static_cast<std::uint64_t>(choice.overlap.distinct)) + "; direct sends " +
         rounded(linear::direct_to_gather(choice.overlap, world)) + " of gather's bytes";
}

nlohmann::ordered_json exchange_json(const ExchangeOption& option, int world) {
  const linear::ExchangeChoice& choice = option.choice;
  nlohmann::ordered_json all{{"reducer", choice.spec}, {"reason", choice.reason}};
  const auto figure = [&](double number) {
    return choice.measured ? nlohmann::ordered_json(number) : nlohmann::ordered_json(nullptr);
  };
  all["pairs_of_a_rank"] = figure(choice.overlap.own);
  all["distinct_pairs"] = figure(choice.overlap.distinct);
  all["direct_to_gather"] = figure(linear::direct_to_gather(choice.overlap, world));
  return all;
}

}  // namespace deltawire::cli
