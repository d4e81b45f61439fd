// The sub-commands: each adds itself to the parser, which runs the one that the user chooses.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/outcome.h"
#include "cli/plan/report.h"

namespace deltawire::cli {

void add_codecs_command(CLI::App& app);
void add_encode_command(CLI::App& app);
void add_decode_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_compare_command(CLI::App& app);
void add_plan_command(CLI::App& app);
void add_patch_command(CLI::App& app);
void add_doctor_command(CLI::App& app);

// What `plan --quick` says for a model of that size, with values of a normal distribution.
PlanReport quick_plan(std::uint64_t parameters, int ranks, const LinkRates& link, const std::string& tier);

// Checks of an option's number, which say nothing in --help. Unlike CLI::Range they refuse NaN.
CLI::Validator number_range(double low, double high);  // both included
CLI::Validator number_from_0();
CLI::Validator positive_number();
// Makes digits of a count (number_text.h) for the option to read; both ends included.
CLI::Validator count_range(std::uint64_t least,
                           std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

// Adds an option with a value: `option` is its name and a word for the value, "--lr X". --help shows the
// default, unless that is 0 or empty.
template <class Value>
CLI::Option* add_value(CLI::App& command, const std::string& option, Value& value, const std::string& about) {
  const std::size_t space = option.find(' ');
  CLI::Option* const added = command.add_option(option.substr(0, space), value, about);
  if (value != Value{}) added->capture_default_str();
  return added->type_name(option.substr(space + 1));
}

// The option --min-elements of the commands that measure codecs: Policy::min_elements.
void add_min_elements_option(CLI::App& command, std::uint64_t& min_elements);

}  // namespace deltawire::cli
