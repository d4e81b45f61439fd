// deltawire completion SHELL, deltawire manual: what a package installs beside the program.
#include <iostream>
#include <memory>
#include <string>

#include "cli/command_facts.h"
#include "cli/commands.h"

namespace deltawire::cli {

void add_completion_command(CLI::App& app, Command& chosen) {
  CLI::App* command =
      app.add_subcommand("completion", "Print a shell's completion of this program's commands");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "The shell to complete in")->required()->check(CLI::IsMember(kShells));
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
