// The program `deltawire`: parses the command line and turns every failure into one line and an exit status.
#include <algorithm>
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/outcome.h"
#include "linear/commands/commands.h"

namespace deltawire::cli {
namespace {

constexpr const char* kAbout =
    "deltawire: gradients and weight updates in far fewer bytes.\n"
    "Encodes arrays as .dw files and back, shows what is in them and how far two are apart, compares "
    "methods\n"
    "on your gradients, plans which one suits a link, and patches models.";

constexpr const char* kFooter =
    "Examples:\n"
    "  deltawire codecs                                      list the codecs\n"
    "  deltawire encode int8 gradient.npy gradient.dw        compress an array\n"
    "  deltawire inspect gradient.dw                         show what is in it\n"
    "  deltawire decode gradient.dw restored.npy             decompress it\n"
    "  deltawire compare --input gradient.npy                compare bytes, errors and speed of all methods\n"
    "  deltawire plan --input trace/ --link 100mbit          which codec pays on a link, if any\n"
    "  deltawire patch make OLD NEW PATCH                    write what changed between two models\n"
    "  deltawire doctor node2                                what is wrong between two machines\n"
    "  deltawire train linear --data a9a --model a9a.npz     train a linear model on sparse rows\n"
    "  deltawire predict --model a9a.npz --data a9a.t        predict with it\n"
    "  deltawire generate kdd12 --scale 0.01 clicks.libsvm   generate rows shaped like a published set\n"
    "\n"
    "Run 'deltawire COMMAND --help' for help on a command.\n"
    "Exit status: 0 success, 1 failure, 2 wrong usage; one line on standard error says why.\n";

// The parser's error message, and the command whose help says more.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::string path;
  const CLI::App* command = &app;
  for (auto below = app.get_subcommands(); !below.empty(); below = command->get_subcommands()) {
    command = below.front();
    path += (path.empty() ? "" : " ") + command->get_name();
  }
  const std::string help = "; see 'deltawire " + path + " --help'";
  const bool has_commands = !command->get_subcommands([](const CLI::App*) { return true; }).empty();
  const int next = static_cast<int>(std::ranges::count(path, ' ')) + 2;  // the argument behind the command
  if (command != &app && has_commands && next < argc && argv[next][0] != '-') {
    return path + ": unknown command \"" + argv[next] + "\"" + help;
  }
  if (command != &app) return path + ": " + error.what() + help;
  if (argc < 2) return "no command given; see 'deltawire --help'";
  const std::string kind = argv[1][0] == '-' ? "option" : "command";
  return "unknown " + kind + " \"" + argv[1] + "\"; see 'deltawire --help'";
}

int parse_and_run(int argc, char** argv) {
  CLI::App app(kAbout, "deltawire");
  app.footer(kFooter);
  app.set_version_flag("--version", "deltawire " DELTAWIRE_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(26);
  add_codecs_command(app);
  add_encode_command(app);
  add_decode_command(app);
  add_inspect_command(app);
  add_compare_command(app);
  add_plan_command(app);
  add_patch_command(app);
  add_doctor_command(app);
  linear::add_train_command(app);
  linear::add_predict_command(app);
  linear::add_generate_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    print_failure(usage_message(app, error, argc, argv));
    return kExitUsage;
  } catch (const Failure& failure) {
    print_failure(failure.message);
    return failure.exit_status;
  }
  return 0;
}

}  // namespace
}  // namespace deltawire::cli

int main(int argc, char** argv) {
  using deltawire::cli::kExitFailure;
  using deltawire::cli::print_failure;
  try {
    const int status = deltawire::cli::parse_and_run(argc, argv);
    std::cout.flush();
    if (status == 0 && !std::cout) {
      print_failure("standard output cannot be written; check the disk or the pipe that it goes to");
      return kExitFailure;
    }
    return status;
  } catch (const std::bad_alloc&) {
    print_failure("not enough memory for this tensor; split it, or use a machine with more");
  } catch (const std::exception& error) {
    print_failure(std::string("unexpected: ") + error.what() + "; please report it");
  }
  return kExitFailure;
}
