// The sub-commands for sparse linear models, as in cli/commands.h.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace deltawire::linear {

void add_train_command(CLI::App& app);
void add_predict_command(CLI::App& app);
void add_generate_command(CLI::App& app);

}  // namespace deltawire::linear
