// A list of tensors with names and dims of its own, while their values stay the caller's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "deltawire/tensor.h"

namespace deltawire {

class OwnTensors {
 public:
  OwnTensors() = default;
  OwnTensors(OwnTensors&&) = default;
  OwnTensors& operator=(OwnTensors&&) = default;

  // Reuses the memory of an earlier list.
  void assign(std::span<const Named> tensors) {
    names_.resize(tensors.size());
    dims_.resize(tensors.size());
    list_.assign(tensors.begin(), tensors.end());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      names_[i] = tensors[i].name;
      dims_[i].assign(tensors[i].tensor.dims.begin(), tensors[i].tensor.dims.end());
      list_[i].name = names_[i];
      list_[i].tensor.dims = dims_[i];
    }
  }

  // Valid until the next assign().
  std::span<const Named> all() const noexcept { return list_; }

 private:
  std::vector<std::string> names_;
  std::vector<std::vector<std::uint64_t>> dims_;
  std::vector<Named> list_;
};

}  // namespace deltawire
