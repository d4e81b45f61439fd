// The tensors of a session's buckets.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/errors.h"
#include "channel/distinct_tensors.h"
#include "deltawire/reducer.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"
#include "wire/hashes.h"

namespace deltawire {

// A list of tensors with names and dims of its own, while their values stay the caller's.
class OwnTensors {
 public:
  OwnTensors() = default;
  OwnTensors(OwnTensors&&) = default;
  OwnTensors& operator=(OwnTensors&&) = default;

  // Whether these are the tensors of the list: names, shapes, forms. Their values may lie elsewhere.
  bool same(std::span<const Named> tensors) const noexcept {
    return std::ranges::equal(list_, tensors, [](const Named& own, const Named& other) {
      return own.name == other.name && own.first == other.first && own.tensor.dtype == other.tensor.dtype &&
             own.tensor.elements() == other.tensor.elements() &&
             own.tensor.has_keys() == other.tensor.has_keys() &&
             own.whole_elements() == other.whole_elements() && own.whole_dims() == other.whole_dims() &&
             std::ranges::equal(own.tensor.dims, other.tensor.dims);
    });
  }

  // kInvalidArgument for tensors of one name, or that share memory. `known`: same(tensors); then they are
  // looked at only where their values lie elsewhere, since those of the list were.
  Status check_distinct(std::span<const Named> tensors, bool known) const {
    const auto place = [](const Named& each) { return each.tensor.values; };
    if (known && std::ranges::equal(list_, tensors, {}, place, place)) return {};
    RETURN_IF_ERROR(known ? Status{} : check_names(tensors));
    return check_apart(tensors);
  }

  // Names and dims are copied, and names hashed, unless they are those of the list; says whether they are.
  bool assign(std::span<const Named> tensors) {
    const bool known = same(tensors);
    if (!known) copy_names(tensors);
    assert(list_.size() == tensors.size() && dims_.size() == tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      list_[i].tensor = tensors[i].tensor;
      list_[i].tensor.dims = dims_[i];
    }
    return known;
  }

  // Their names and dims are valid until an assign() of others.
  std::span<const Named> all() const noexcept { return list_; }

 private:
  void copy_names(std::span<const Named> tensors) {
    list_.clear();  // whole, or nothing: this may fail halfway
    names_.resize(tensors.size());
    dims_.resize(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      names_[i] = tensors[i].name;
      dims_[i].assign(tensors[i].tensor.dims.begin(), tensors[i].tensor.dims.end());
    }
    list_.assign(tensors.begin(), tensors.end());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      list_[i].name = names_[i];
      list_[i].name_hash = name_hash(tensors[i]);
    }
  }

  std::vector<std::string> names_;
  std::vector<std::vector<std::uint64_t>> dims_;
  std::vector<Named> list_;
};

// Tells the other ranks the names, shapes and dtypes of the first bucket, and waits for theirs: ranks may
// have been started with other models, which without it they would learn only from a message that comes, and
// not which tensor it is. A failure is the transport's; kMismatch names the first tensor that differs.
void compare_tensors(std::span<const Named> tensors, const Step& step, Transport& transport,
                     Deadline deadline);

}  // namespace deltawire
