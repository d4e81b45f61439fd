// What happened in a simulation, as a hash and, if wanted, as text.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "deltawire/transport.h"

namespace deltawire::simulation {

class Trace {
 public:
  explicit Trace(bool prints) noexcept : prints_(prints) {}

  // Equal for equal runs.
  std::uint64_t hash() const noexcept { return hash_; }
  bool prints() const noexcept { return prints_; }

  void add(std::uint64_t value) noexcept {
    hash_ = (hash_ ^ value) * 0x9E3779B97F4A7C15U;
    hash_ ^= hash_ >> 29;
  }
  // An event that a reader wants to see.
  void note(Deadline now, const std::string& text) {
    add(static_cast<std::uint64_t>(now.time_since_epoch().count()));
    for (const char letter : text) add(static_cast<unsigned char>(letter));
    if (!prints_) return;
    std::printf("%14.6f  %s\n", std::chrono::duration<double>(now.time_since_epoch()).count(), text.c_str());
  }

 private:
  bool prints_;
  std::uint64_t hash_ = 0;
};

}  // namespace deltawire::simulation
