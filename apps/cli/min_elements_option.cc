#include "cli/commands.h"

namespace deltawire::cli {

void add_min_elements_option(CLI::App& command, std::uint64_t& min_elements) {
  command
      .add_option("--min-elements", min_elements, "Send tensors with fewer values as float32, as in training")
      ->transform(count_range(0))
      ->type_name("N")
      ->capture_default_str();
}

}  // namespace deltawire::cli
