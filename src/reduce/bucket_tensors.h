// The tensors of a bucket, in the caller's memory, and their means: of dense ones in staging memory, of those
// in key-value form as lists. The caller's memory changes in publish() alone.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/buffer_pool.h"
#include "base/errors.h"
#include "channel/distinct_tensors.h"
#include "deltawire/part_backend.h"
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

// What is seen of dense means, or of a part of them, for the vote and before they are published.
struct SeenMeans {
  std::uint64_t elements = 0;
  std::uint64_t digest = 0;  // a sum, so that parts may come in any order
  bool finite = true;        // where it is looked for
  bool in_range = true;

  void add(const SeenMeans& more) noexcept;
};

// Parts of means that lie where they were formed, in any order, until they are published.
class ApartMeans {
 public:
  void clear() noexcept { parts_.clear(); }
  bool empty() const noexcept { return parts_.empty(); }
  // Of a tensor, behind `before` elements of it.
  void add(std::span<const float> mean, std::size_t tensor, std::uint64_t before) {
    parts_.push_back({mean, tensor, before});
  }
  // kRange names the first tensor that can't hold its mean.
  Status check_range(std::span<const Named> tensors) const;
  void publish(std::span<const Named> tensors, bool past_caches) const noexcept;

 private:
  struct Part {
    std::span<const float> mean;
    std::size_t tensor = 0;
    std::uint64_t before = 0;
  };
  std::vector<Part> parts_;
};

class BucketTensors {
 public:
  // Both outlive it. `backend`: in whose memory tensors and means are; null: in the host's.
  explicit BucketTensors(BufferPool& pool, PartBackend* backend = nullptr)
      : pool_(&pool), backend_(backend) {}

  // Whether these are the tensors of the last bucket: then assign copies and hashes nothing.
  bool same(std::span<const Named> tensors) const noexcept { return tensors_.same(tensors); }

  // kInvalidArgument for tensors that can't be in one bucket.
  Status check_distinct(std::span<const Named> tensors) const {
    return tensors_.check_distinct(tensors, same(tensors));
  }

  // Whether finite() will be asked: settle() looks for it then.
  void look_for_infinities(bool looks) noexcept { looks_for_infinities_ = looks; }

  // Takes a bucket. True where it has the tensors of the last one, whose values may lie elsewhere: then what
  // was planned for them holds.
  bool assign(const Bucket& bucket);

  std::span<const Named> all() const noexcept { return tensors_.all(); }
  // In either form.
  std::uint64_t elements() const noexcept;
  std::uint64_t raw_bytes() const noexcept;

  // Takes memory for the means of dense tensors, uninitialized. `begins`: no part has settled yet.
  void stage(bool begins = true) {
    if (begins) settled_ = {};
    staging_ = pool_->take(sizeof(float) * dense_elements_);
  }
  // The same with a backend: zeros, in its memory. None where there are no elements.
  bool is_on_device() const noexcept { return backend_ != nullptr; }
  Status stage_on_device();
  // And with the tensors' values times `factor`.
  Status load_on_device(float factor);
  // The means of dense tensors, one tensor after another; empty before stage(). On a device only addresses.
  std::span<float> means() const noexcept {
    return backend_ != nullptr ? std::span(on_device_.get(), on_device_ ? dense_elements_ : 0)
                               : staging_.floats();
  }
  // The mean of one of them, after stage().
  std::span<float> mean_of(std::size_t tensor) const noexcept {
    assert(tensor < begins_.size() && !all()[tensor].tensor.has_keys());
    assert(begins_[tensor] + all()[tensor].tensor.count <= means().size());
    return means().subspan(begins_[tensor], all()[tensor].tensor.count);
  }
  // The means of tensors in key-value form, in their order.
  std::span<Pairs> pair_means() noexcept { return pair_means_; }

  // This part of the dense means is as it will be published: looks at it for the next three while it is in
  // the cache. Of a bucket all parts or none, each once and in any order, the same parts on all ranks.
  void settle(const Named& mean) noexcept;
  // In place of settle(), where no memory was staged and the parts of a tensor's mean lie apart: they stay
  // there until publish(). What is seen of a part, and that it is settled, perhaps as another rank saw it.
  // Parts of a bucket are settled so, or none.
  SeenMeans look_at_apart(const Named& mean, std::size_t tensor) const noexcept;
  void settle_apart(std::span<const Named> means, std::span<const std::size_t> tensors,
                    const SeenMeans& seen);

  // Before the next three: looks at means on a device.
  Status examine();

  // Continues the step's digest with the bucket's means.
  std::uint64_t digest(std::uint64_t seed) const;

  // Whether all means are finite.
  bool finite() const;

  // kRange names the first mean that its tensor's dtype can't hold. Equal on all ranks.
  Status check_range() const;

  // Gives the means to the caller, each rounded once to its tensor's dtype. Takes no memory.
  void publish();

  // Gives the staging memory to the next bucket.
  void give_back() noexcept {
    staging_.reset();
    on_device_.reset();
  }

 private:
  void list_means();
  bool is_settled() const noexcept {
    assert(settled_.elements == 0 || settled_.elements == dense_elements_);
    return settled_.elements > 0;
  }

  BufferPool* pool_;
  PartBackend* backend_;
  DeviceFloats on_device_;
  MeanFacts facts_;                     // of means on a device
  std::vector<DeviceMean> to_publish_;  // all means, as the backend takes them
  OwnTensors tensors_;
  std::vector<std::uint64_t> begins_;  // by tensor: where the mean of a dense one begins in means()
  std::uint64_t dense_elements_ = 0;
  bool looks_for_infinities_ = false;
  SeenMeans settled_;
  BufferPool::Buffer staging_;
  ApartMeans apart_;
  std::vector<Pairs> pair_means_;
  std::span<Pairs> pair_targets_;  // where the caller wants them
};

}  // namespace deltawire
