// --grid: the learning rate and its decay by trial (linear/grid_search.h), and what is shown of it.
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "deltawire/result.h"
#include "linear/grid_search.h"

namespace CLI {
class App;
}  // namespace CLI

namespace deltawire::cli {

struct GridOptions {
  bool wanted = false;
  double sample_percent = 10;
};

// --grid and --grid-sample. REQUIRES: --lr and --decay are there, which --grid excludes.
void add_grid_options(CLI::App* command, GridOptions& options);

// Tries the grid, prints a line for each pair where this rank `tells`, and leaves the best in `train`.
// `memory_bytes`: those of this rank for all its rows. Errors: those of search_grid.
Result<linear::GridReport> choose_by_grid(const GridOptions& options, bool tells, std::uint64_t memory_bytes,
                                          linear::TrainSettings& train, linear::BlockStore& data,
                                          linear::Exchange& exchange);

// For --json, and the settings in a model's file.
nlohmann::ordered_json grid_json(const linear::GridReport& report);

}  // namespace deltawire::cli
