#include "cli/command_facts.h"

#include <utility>

namespace deltawire::cli {
namespace {

// CLI11 shows a list of choices as "{a,b}" in the type's name.
std::vector<std::string> choices_in(const std::string& type) {
  std::vector<std::string> choices;
  const std::size_t open = type.find('{');
  const std::size_t close = type.find('}', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return choices;
  std::string word;
  for (const char c : type.substr(open + 1, close - open - 1) + ",") {
    if (c != ',') {
      word += c;
    } else if (!word.empty()) {
      choices.push_back(std::exchange(word, {}));
    }
  }
  return choices;
}

OptionFacts facts_of(const CLI::Option& option) {
  OptionFacts facts;
  facts.positional = option.get_positional();
  if (facts.positional) {
    facts.names.push_back(option.get_name(true));
  } else {
    for (const std::string& name : option.get_snames()) facts.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) facts.names.push_back("--" + name);
  }
  facts.about = option.get_description();
  facts.required = option.get_required();
  if (option.get_type_size() != 0) {
    facts.choices = choices_in(option.get_type_name());
    const std::string type = option.get_type_name();
    facts.value = facts.choices.empty() ? type.substr(0, type.find(':')) : "WORD";
    facts.preset = option.get_default_str();
    facts.takes_several = !facts.positional && option.get_items_expected_max() > 1;
  }
  return facts;
}

CommandFacts facts_below(const CLI::App& app, std::vector<std::string> path) {
  CommandFacts facts{app.get_name(), std::move(path), app.get_description(), app.get_footer(), {}, {}};
  for (const bool positional : {true, false}) {
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_positional() == positional) facts.options.push_back(facts_of(*option));
    }
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    std::vector<std::string> below = facts.path;
    below.push_back(command->get_name());
    facts.commands.push_back(facts_below(*command, std::move(below)));
  }
  return facts;
}

}  // namespace

CommandFacts facts_of(const CLI::App& app) {
  return facts_below(app, {});
}

}  // namespace deltawire::cli
