// Parts on their way in messages of a bounded number of elements.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/tensor.h"

namespace deltawire {

class PartMessages {
 public:
  void clear() {
    messages_.clear();
    elements_ = 0;
  }

  // Goes into the last message if that has room, else into a new one, alone if it must.
  void add(const Named& part, std::uint64_t most_elements) {
    const std::uint64_t count = part.tensor.elements();
    if (messages_.empty() || elements_ + count > most_elements) {
      messages_.emplace_back();
      elements_ = 0;
    }
    messages_.back().push_back(part);
    elements_ += count;
  }

  // The parts of each message.
  std::size_t size() const noexcept { return messages_.size(); }
  bool empty() const noexcept { return messages_.empty(); }
  std::vector<Named>& operator[](std::size_t message) { return messages_[message]; }
  auto begin() noexcept { return messages_.begin(); }
  auto end() noexcept { return messages_.end(); }

 private:
  std::vector<std::vector<Named>> messages_;
  std::uint64_t elements_ = 0;  // of the last message
};

}  // namespace deltawire
