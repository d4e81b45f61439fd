// deltawire completion SHELL: completion for bash, zsh and fish, generated from the parser's description of
// the commands.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "cli/command_facts.h"
#include "cli/commands.h"
#include "deltawire/codec.h"

namespace deltawire::cli {
namespace {

using Words = std::vector<std::string>;

std::string joined(const Words& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string replaced(std::string text, const std::string& old, const std::string& by) {
  for (std::size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + by.size())) {
    text.replace(at, old.size(), by);
  }
  return text;
}

Words codec_names() {
  Words names;
  for (const CodecInfo* info : registered_codecs()) names.emplace_back(info->name);
  return names;
}

// The choices for a positional or a value; empty: a file, or anything.
Words choices_of(const OptionFacts& option) {
  if (!option.choices.empty()) return option.choices;
  const std::string& value = option.positional ? option.names.front() : option.value;
  return value == "SPEC" || value == "CODEC" || value == "CODECS" ? codec_names() : Words{};
}

Words option_names(const CommandFacts& command) {
  Words names;
  for (const OptionFacts& option : command.options) {
    if (!option.positional) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

Words command_names(const CommandFacts& command) {
  Words names;
  for (const CommandFacts& below : command.commands) names.push_back(below.name);
  return names;
}

// The program, its commands and theirs.
template <class Visit>
void visit_all(const CommandFacts& command, const Visit& visit) {
  visit(command);
  for (const CommandFacts& below : command.commands) visit_all(below, visit);
}

// Words that are commands make a path; completions are listed by path.
std::string bash_script(const CommandFacts& program) {
  std::string paths;
  std::string cases;
  visit_all(program, [&](const CommandFacts& command) {
    const std::string path = joined(command.path, " ");
    if (!path.empty()) paths += (paths.empty() ? "" : "|") + ("'" + path + "'");
    Words first = command_names(command);
    Words after;    // behind options that have choices: their value,
    Words further;  // and more of them
    for (const OptionFacts& option : command.options) {
      const Words choices = choices_of(option);
      if (option.positional) {
        if (&option == &command.options.front()) first.insert(first.end(), choices.begin(), choices.end());
      } else if (!choices.empty()) {
        Words& cases_of = option.takes_several ? further : after;
        cases_of.push_back("      " + joined(option.names, "|") + ") words='" + joined(choices, " ") +
                           "' ;;\n");
      }
    }
    cases += "    '" + path + "')\n      options='" + joined(option_names(command), " ") +
             "'\n      first='" + joined(first, " ") + "'\n";
    if (!after.empty()) cases += "      case $before in\n" + joined(after, "") + "      esac\n";
    if (!further.empty()) cases += "      case $option in\n" + joined(further, "") + "      esac\n";
    cases += "      ;;\n";
  });
  return "# bash completion for deltawire: source it, or put it in a folder of bash-completion.\n"
         "_deltawire() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  local path='' next i words='' options='' first='' option='' given=0\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    next=\"${path:+$path }${COMP_WORDS[i]}\"\n"
         "    case $next in\n"
         "      " +
         paths +
         ") path=$next given=0 ;;\n"
         "      *) if [[ ${COMP_WORDS[i]} == -?* ]]; then option=${COMP_WORDS[i]}; else given=1; fi ;;\n"
         "    esac\n"
         "  done\n"
         "  case $path in\n" +
         cases +
         "  esac\n"
         "  if [[ $word == -* ]]; then words=$options; fi\n"
         "  if [[ -z $words && $given == 0 ]]; then words=$first; fi\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "}\n"
         "complete -o default -F _deltawire deltawire\n";
}

std::string zsh_quoted(std::string text) {
  for (const char* special : {"\\", "[", "]", ":"})
    text = replaced(text, special, std::string("\\") + special);
  return replaced(text, "'", "'\\''");
}

std::string zsh_option(const OptionFacts& option, int position) {
  const Words choices = choices_of(option);
  const std::string action = choices.empty() ? "_files" : "(" + joined(choices, " ") + ")";
  if (option.positional) {
    return " '" + std::to_string(position) + ":" + zsh_quoted(option.names.front()) + ":" + action + "'";
  }
  std::string text;
  for (const std::string& name : option.names) {
    text += " '" + name + "[" + zsh_quoted(option.about) + "]";
    if (!option.value.empty()) {
      text += (option.takes_several ? ":*:" : ":") + zsh_quoted(option.value) + ":" + action;
    }
    text += "'";
  }
  return text;
}

std::string zsh_function(const CommandFacts& command) {
  const std::string name = "_deltawire" + replaced(" " + joined(command.path, " "), " ", "_");
  std::string text =
      (command.path.empty() ? "_deltawire" : name) + "() {\n  local -a commands\n  local state line\n";
  std::string arguments;
  int position = 0;
  for (const OptionFacts& option : command.options) {
    arguments += zsh_option(option, option.positional ? ++position : 0);
  }
  if (command.commands.empty()) return text + "  _arguments" + arguments + "\n}\n";
  text += "  _arguments -C" + arguments + " '1: :->command' '*:: :->rest'\n  case $state in\n    command)\n" +
          "      commands=(";
  for (const CommandFacts& below : command.commands) {
    text += "'" + below.name + ":" + zsh_quoted(below.about) + "' ";
  }
  text += ")\n      _describe command commands ;;\n    rest)\n      case $words[1] in\n";
  for (const CommandFacts& below : command.commands) {
    text += "        " + below.name + ") _deltawire_" + joined(below.path, "_") + " ;;\n";
  }
  return text + "      esac ;;\n  esac\n}\n";
}

std::string zsh_script(const CommandFacts& program) {
  std::string text =
      "#compdef deltawire\n# zsh completion for deltawire: put it in a folder of $fpath as _deltawire.\n";
  visit_all(program, [&](const CommandFacts& command) { text += zsh_function(command); });
  return text +
         "if [[ $funcstack[1] == _deltawire ]]; then _deltawire \"$@\"; else compdef _deltawire deltawire; "
         "fi\n";
}

std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

// True if the commands so far are this path and no sub-command follows.
std::string fish_condition(const CommandFacts& command) {
  std::string text;
  for (const std::string& name : command.path) {
    text += (text.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + name);
  }
  if (!command.commands.empty()) {
    text += (text.empty() ? "" : "; and ") +
            ("not __fish_seen_subcommand_from " + joined(command_names(command), " "));
  }
  return fish_quoted(text);
}

// fish itself completes the first value of an option; these are the others.
std::string fish_further(const CommandFacts& command, const OptionFacts& option, const Words& choices) {
  std::string condition = fish_condition(command);
  condition.insert(condition.size() - 1, "; and __fish_contains_opt " + option.names.back().substr(2));
  return "complete -c deltawire -n " + condition + " -a " + fish_quoted(joined(choices, " ")) + " -d " +
         fish_quoted(option.about) + "\n";
}

std::string fish_script(const CommandFacts& program) {
  std::string text =
      "# fish completion for deltawire: put it in ~/.config/fish/completions as deltawire.fish.\n";
  visit_all(program, [&](const CommandFacts& command) {
    const std::string start = "complete -c deltawire -n " + fish_condition(command);
    for (const CommandFacts& below : command.commands) {
      text += start;
      text += " -f -a " + below.name + " -d " + fish_quoted(below.about) + "\n";
    }
    for (const OptionFacts& option : command.options) {
      const Words choices = choices_of(option);
      const std::string about = " -d " + fish_quoted(option.about) + "\n";
      if (option.positional) {
        if (!choices.empty()) text += start + " -a " + fish_quoted(joined(choices, " ")) + about;
        continue;
      }
      text += start;
      for (const std::string& name : option.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!option.value.empty())
        text += choices.empty() ? " -r" : " -x -a " + fish_quoted(joined(choices, " "));
      text += about;
      if (option.takes_several && !choices.empty()) text += fish_further(command, option, choices);
    }
  });
  return text;
}

std::string completion_script(const CommandFacts& program, const std::string& shell) {
  if (shell == "zsh") return zsh_script(program);
  return shell == "fish" ? fish_script(program) : bash_script(program);
}

}  // namespace

void add_completion_command(CLI::App& app, Command& chosen) {
  CLI::App* command =
      app.add_subcommand("completion", "Print a shell's completion of this program's commands");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "The shell to complete in")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "Examples:\n"
      "  source <(deltawire completion bash)\n"
      "  deltawire completion zsh > ~/.zfunc/_deltawire\n"
      "  deltawire completion fish > ~/.config/fish/completions/deltawire.fish\n");
  command->callback([&app, &chosen, shell] {
    chosen = [&app, shell]() -> Outcome<void> {
      std::cout << completion_script(facts_of(app), *shell);
      return {};
    };
  });
}

}  // namespace deltawire::cli
