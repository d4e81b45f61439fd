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

inline Deadline in(std::chrono::milliseconds time) {
  return Clock::now() + time;
}

// Generous: a test that meets it hangs, on however slow a machine.
inline Deadline soon() {
  return in(std::chrono::seconds(30));
}

// Bytes that depend on everything given, so that a message in the wrong place is noticed.
inline std::vector<std::byte> pattern(std::size_t length, std::uint64_t seed) {
  std::vector<std::byte> bytes(length);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (std::byte& value : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

inline Handle send_bytes(Transport& from, int to, Tag tag, const std::vector<std::byte>& bytes) {
  const Bytes piece(bytes);
  return from.post_send(to, tag, {&piece, 1});
}

}  // namespace deltawire
