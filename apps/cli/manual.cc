// deltawire manual: the manual page, generated from the parser's description of the commands.
#include <iostream>
#include <string>
#include <string_view>

#include "cli/command_facts.h"
#include "cli/commands.h"

namespace deltawire::cli {
namespace {

// Escapes text for the page: a line that begins with a dot would be a request.
std::string text_of(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool line_begins = i == 0 || text[i - 1] == '\n';
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string usage_of(const CommandFacts& command) {
  std::string text = ".B deltawire";
  for (const std::string& name : command.path) text += " " + text_of(name);
  text += "\n";
  bool has_options = false;
  for (const OptionFacts& option : command.options) {
    if (option.positional) {
      const std::string name = text_of(option.names.front());
      text += option.required ? ".I " + name + "\n" : ".RI [ " + name + " ]\n";
    } else {
      has_options = true;
    }
  }
  if (!command.commands.empty()) text += ".I COMMAND\n";
  return text + (has_options ? ".RI [ options ]\n" : "");
}

std::string option_text(const OptionFacts& option) {
  std::string names;
  for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + text_of(name);
  std::string text = ".TP\n" + std::string(option.positional ? ".I " : ".B ") + names;
  if (!option.positional && !option.value.empty()) text += " " + text_of(option.value);
  text += "\n" + text_of(option.about);
  std::string choices;
  for (const std::string& choice : option.choices) choices += (choices.empty() ? "" : ", ") + choice;
  if (!choices.empty()) text += " (one of " + text_of(choices) + ")";
  if (!option.preset.empty()) text += " [" + text_of(option.preset) + "]";
  return text + "\n";
}

void add_command(const CommandFacts& command, std::string& page) {
  std::string heading;
  for (const std::string& name : command.path) heading += (heading.empty() ? "" : " ") + name;
  page += ".SS " + text_of(heading) + "\n" + usage_of(command) + ".PP\n" + text_of(command.about) + ".\n";
  for (const OptionFacts& option : command.options) page += option_text(option);
  if (!command.footer.empty()) page += ".PP\n.nf\n" + text_of(command.footer) + "\n.fi\n";
  for (const CommandFacts& below : command.commands) add_command(below, page);
}

std::string manual_page(const CommandFacts& program, const std::string& version) {
  const std::size_t colon = program.about.find(": ");
  const std::size_t line = program.about.find('\n');
  std::string page = ".TH DELTAWIRE 1 \"\" \"deltawire " + version +
                     "\" \"User Commands\"\n.ad l\n.SH NAME\ndeltawire \\- " +
                     text_of(program.about.substr(colon + 2, line - colon - 3)) + "\n.SH SYNOPSIS\n" +
                     usage_of(program) + ".SH DESCRIPTION\n" + text_of(program.about.substr(line + 1)) +
                     "\n.SH OPTIONS\n";
  for (const OptionFacts& option : program.options) page += option_text(option);
  page += ".SH COMMANDS\n";
  for (const CommandFacts& command : program.commands) add_command(command, page);
  return page + ".SH NOTES\n.nf\n" + text_of(program.footer) + "\n.fi\n";
}

}  // namespace

void add_manual_command(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("manual", "Print the manual page, for man(1)");
  command->footer(
      "Examples:\n"
      "  deltawire manual | man -l -\n"
      "  deltawire manual > /usr/local/share/man/man1/deltawire.1\n");
  command->callback([&app, &chosen] {
    chosen = [&app]() -> Outcome<void> {
      std::cout << manual_page(facts_of(app), DELTAWIRE_VERSION);
      return {};
    };
  });
}

}  // namespace deltawire::cli
