// A step's tensors as a Channel takes them, and memory for what comes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cli/measure/input.h"
#include "deltawire/channel.h"

namespace deltawire::cli {

// Tensors of pairs are given in key-value form where the channel takes it, else dense; all are decoded to
// dense form. Views the step's values.
class Parts {
 public:
  // `number`: the step that the message will say it is.
  Parts(const InputStep& step, const Channel& channel, std::uint64_t number);

  const MessageLayout& sent() const noexcept { return sent_layout_; }
  const MessageLayout& slots() const noexcept { return slot_layout_; }
  std::span<const float> decoded(std::size_t tensor) const { return decoded_[tensor]; }

 private:
  std::vector<std::vector<float>> decoded_;
  std::vector<Named> sent_;
  std::vector<Named> slots_;
  MessageLayout sent_layout_;
  MessageLayout slot_layout_;
};

std::uint64_t bytes_of(std::span<const Bytes> pieces) noexcept;

}  // namespace deltawire::cli
