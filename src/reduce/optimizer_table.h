// The rows of the table of codecs and optimizers (deltawire/optimizer_rules.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace deltawire {

enum class Arrival : std::uint8_t {
  kAtOnce,  // nearly all of a gradient, in the step that it is of
  kLate,    // most of it later, with the parameters that CodecInfo::late says
  kSpikes,  // few values, as large as the largest
};

struct CodecRow {
  std::string_view codec;
  Arrival arrival = Arrival::kAtOnce;
  int lost_under_adam = 0;  // points of accuracy on LeNet-5, in spite of its rule
  bool factored = false;    // though it is late, Adam takes it better by the exact factored second moment
};

// Null for a codec that has none.
const CodecRow* row_of_codec(std::string_view codec) noexcept;

}  // namespace deltawire
