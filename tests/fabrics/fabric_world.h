// The ranks that a test program of this folder runs as: real processes over one fabric. All ranks run the
// same tests in the same order; a rank that fails one lets the others meet their deadlines.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deltawire/transport.h"

namespace deltawire {

class FabricWorld {
 public:
  virtual ~FabricWorld() = default;
  // A new mesh of all ranks; every rank calls it.
  virtual Result<std::unique_ptr<Transport>> connect(const std::string& settings) = 0;
};

// Set by main() before the first test.
FabricWorld& fabric_world();

// As connect(); a failure ends the test program, as nothing else could be tested.
std::unique_ptr<Transport> connect_world(const std::string& settings = {});

}  // namespace deltawire
