// The program's commands as its parser knows them: what completions and the manual page are made of.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace deltawire::cli {

struct OptionFacts {
  std::vector<std::string> names;  // "--force", "-h"; of a positional its one name
  std::string about;
  std::string value;                 // what stands behind it, "N"; empty: a flag
  std::vector<std::string> choices;  // of its value, where it has a list
  std::string preset;                // the value without it; empty: none to show
  bool positional = false;
  bool required = false;
  bool takes_several = false;  // values, one after the other
};

struct CommandFacts {
  std::string name;
  std::vector<std::string> path;  // of commands that lead here, its own name last; empty: the program
  std::string about;
  std::string footer;
  std::vector<OptionFacts> options;  // in the order of --help, positionals first
  std::vector<CommandFacts> commands;
};

CommandFacts facts_of(const CLI::App& app);

// Of shells that completion_script knows.
inline const std::vector<std::string> kShells{"bash", "zsh", "fish"};

// REQUIRES: shell is one of kShells.
std::string completion_script(const CommandFacts& program, const std::string& shell);

// A page for man(1), section 1.
std::string manual_page(const CommandFacts& program, const std::string& version);

}  // namespace deltawire::cli
