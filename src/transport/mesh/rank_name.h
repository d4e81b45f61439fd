// How error texts name ranks.
#pragma once

#include <string>

namespace deltawire {

// "rank 3".
inline std::string rank_name(int rank) {
  return "rank " + std::to_string(rank);
}

// A text from that rank, prefixed by its name.
inline std::string reported(int by, const std::string& text) {
  const std::string name = rank_name(by);
  return text.starts_with(name + " ") ? text : name + " reports: " + text;
}

}  // namespace deltawire
