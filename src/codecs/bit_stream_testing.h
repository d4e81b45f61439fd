// For models of codecs: bits one by one, from the lowest of a byte on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deltawire::testing {

class BitStream {
 public:
  void put(std::uint64_t number, int bits) {
    for (int i = 0; i < bits; ++i) bits_.push_back((number >> i & 1) != 0);
  }
  void append_to(std::vector<std::byte>& bytes) const {
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      if (i % 8 == 0) bytes.push_back(std::byte{0});
      if (bits_[i]) bytes.back() |= std::byte{1} << (i % 8);
    }
  }

 private:
  std::vector<bool> bits_;
};

}  // namespace deltawire::testing
