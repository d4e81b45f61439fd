// The program's commands as the parser describes them, for completions and the manual page.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace deltawire::cli {

struct OptionFacts {
  std::vector<std::string> names;  // "--force", "-h"; a positional has one name
  std::string about;
  std::string value;                 // the placeholder of its value, "N"; empty for a flag
  std::vector<std::string> choices;  // of its value; empty if it is free
  std::string preset;                // its default; empty if there is none to show
  bool positional = false;
  bool required = false;
  bool takes_several = false;  // values in a row
};

struct CommandFacts {
  std::string name;
  std::vector<std::string> path;  // from the outermost command to this one; empty for the program
  std::string about;
  std::string footer;
  std::vector<OptionFacts> options;  // in the order of --help, positionals first
  std::vector<CommandFacts> commands;
};

CommandFacts facts_of(const CLI::App& app);

}  // namespace deltawire::cli
