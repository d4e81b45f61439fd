// The residuals of a channel, by part, with the second buffer that an exact revert needs.
#pragma once

#include <algorithm>
#include <bit>
#include <bitset>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "channel/feedback.h"
#include "codecs/spec_string.h"
#include "deltawire/codec.h"
#include "deltawire/huge_pages.h"
#include "deltawire/part_backend.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "wire/hashes.h"

namespace deltawire {

class ResidualStore {
 public:
  struct Entry {
    std::string name;
    std::uint64_t name_hash = 0;
    std::uint64_t first = 0;
    std::size_t place = 0;  // among the store's entries, in the order of their making
    std::uint64_t elements = 0;
    std::vector<float> values;  // empty: nothing waits; there is room for them all the same
    float scale = 1.0F;         // `values` are so many times what they mean (MessageId::scale)
    std::vector<float> saved;   // `values` before the open step; empty if all were 0; for exact reverts only
    float saved_scale = 1.0F;   // and their scale
    bool in_step = false;       // `saved` holds the state to go back to
    Velocity velocity;          // of parts with momentum before compression
    DeviceFloats on_device;     // with a backend: in place of `values`; null: nothing waits
    DeviceFloats beside;        // and of `saved`; between steps it has no meaning
    MeteredBytes held;

    void count() noexcept { held.set(value_bytes() + velocity.bytes()); }
    std::uint64_t value_bytes() const noexcept {
      return sizeof(float) * (values.capacity() + saved.capacity() + (on_device ? 2 * elements : 0));
    }

    // Makes the values, zeros, unless they are there. Takes no memory.
    void fill() noexcept { values.resize(elements, 0.0F); }

    bool is_empty() const noexcept { return values.empty() && !on_device; }
    void clear() noexcept {
      values.clear();
      on_device.reset();
      beside.reset();
    }

    // A device has left new values beside the old ones.
    void take_step(float new_scale) noexcept {
      on_device.swap(beside);
      saved_scale = std::exchange(scale, new_scale);
      in_step = true;
    }
  };

  // Counts what it holds in `meter`, if there is one. `backend`: whose memory the values are in, null for the
  // host's; it outlives the store.
  explicit ResidualStore(std::shared_ptr<MemoryMeter> meter = nullptr,
                         PartBackend* backend = nullptr) noexcept
      : meter_(std::move(meter)), backend_(backend) {}

  // The part's residual or nullptr. Pointers stay valid until the store is gone.
  Entry* find(const Named& part) const {
    if (entries_.empty()) return nullptr;
    const Key key{name_hash(part), part.first, part.name};
    if (!hashes_[Hash()(key) % hashes_.size()]) return nullptr;
    if (next_ >= in_order_.size()) next_ = 0;
    Entry* entry = in_order_[next_];
    if (key != Key{entry->name_hash, entry->first, entry->name}) {
      const auto found = entries_.find(key);
      if (found == entries_.end()) return nullptr;
      entry = found->second.get();
    }
    next_ = entry->place + 1;
    assert(entry->name_hash == key.name_hash && in_order_[entry->place] == entry);
    return entry;
  }

  // The part's residual, made without values if there is none. kMismatch if it has another element count.
  Result<Entry*> obtain(const Named& part) {
    Entry* entry = find(part);
    const std::uint64_t count = part.tensor.count;
    assert(!part.tensor.has_keys());
    if (entry == nullptr) {
      auto made = std::make_unique<Entry>();
      made->name = part.name;
      made->name_hash = name_hash(part);
      made->place = in_order_.size();
      made->first = part.first;
      made->elements = count;
      if (backend_ == nullptr) make_room(made->values, count);
      made->held = MeteredBytes(meter_, MemoryMeter::Use::kResiduals);
      made->count();
      entry = made.get();
      if (in_order_.size() == in_order_.capacity()) in_order_.reserve(2 * in_order_.size() + 16);
      const Key key{entry->name_hash, part.first, entry->name};
      hashes_.set(Hash()(key) % hashes_.size());
      entries_.emplace(key, std::move(made));
      in_order_.push_back(entry);
    }
    if (entry->elements != count) {
      return mismatch("part '" + entry->name + "' at element " + std::to_string(entry->first) + " has " +
                      std::to_string(count) + " elements, but its residual has " +
                      std::to_string(entry->elements) +
                      "; names must keep their shapes, and a state of another number "
                      "of ranks is loaded with those of all (docs/guides/checkpoints.md)");
    }
    return entry;
  }

  // The part's values; empty where there are none. Of a device they are a copy, until the next call.
  std::span<const float> values_of(const Named& part) const {
    const Entry* entry = find(part);
    if (entry == nullptr || !entry->on_device)
      return entry == nullptr ? std::span<const float>() : entry->values;
    assert(backend_ != nullptr);
    copy_.resize(entry->elements);
    if (!backend_->download(entry->on_device.get(), copy_)) {
      std::ranges::fill(copy_, std::numeric_limits<float>::quiet_NaN());
    }
    return copy_;
  }

  // Makes the entry's values, zeros, unless they are there. Only a device's memory may be missing.
  Status fill(Entry& entry) const {
    if (backend_ == nullptr) {
      entry.fill();
      return {};
    }
    if (entry.on_device) return {};
    ASSIGN_OR_RETURN(DeviceFloats beside, backend_->allocate(entry.elements));
    ASSIGN_OR_RETURN(DeviceFloats values, backend_->allocate(entry.elements));
    entry.beside = std::move(beside);
    entry.on_device = std::move(values);
    entry.count();
    return {};
  }

  // Fills `copy`, which is empty and the host's, with what this one has on a device; and the other way round,
  // which empties `copy`.
  Status download(ResidualStore& copy) const {
    for (const auto& [key, entry] : entries_) {
      if (!entry->on_device) continue;
      const Named part{entry->name, {nullptr, entry->elements, DType::kF32}, entry->first};
      ASSIGN_OR_RETURN(auto* const made, copy.obtain(part));
      made->fill();
      made->scale = entry->scale;
      RETURN_IF_ERROR(backend_->download(entry->on_device.get(), made->values));
    }
    return {};
  }

  Status upload(ResidualStore& copy) {
    for (const auto& [key, entry] : copy.entries_) {
      const Named part{entry->name, {nullptr, entry->elements, DType::kF32}, entry->first};
      ASSIGN_OR_RETURN(auto* const made, obtain(part));
      RETURN_IF_ERROR(fill(*made));
      RETURN_IF_ERROR(backend_->upload(entry->values, made->on_device.get()));
      made->scale = entry->scale;
    }
    copy.entries_.clear();
    copy.in_order_.clear();
    return {};
  }

  // By what the values must be multiplied for `scale`, in double.
  static double factor_to(const Entry& entry, float scale, float decay) noexcept {
    return static_cast<double>(decay) * static_cast<double>(scale) /
           static_cast<double>(FloatEnvironment::pinned(entry.scale));
  }

  // Keeps the entry's values for restore_step(), once a step, and says what to encode with: the kept values,
  // and apart from them the place of the new ones, where no copy was made.
  static Residual keep_for_step(Entry& entry) {
    if (entry.in_step) return entry.values;
    assert(entry.values.size() == entry.elements);
    const bool nothing_waits = std::ranges::all_of(
        entry.values, [](float value) { return std::bit_cast<std::uint32_t>(value) == 0; });
    if (nothing_waits) {
      entry.saved.clear();
    } else {
      make_room(entry.saved, entry.values.size());
      entry.saved.resize(entry.values.size());
      entry.saved.swap(entry.values);
    }
    assert(entry.saved.empty() || entry.saved.size() == entry.elements);
    entry.saved_scale = entry.scale;
    entry.in_step = true;
    entry.count();
    return nothing_waits ? Residual(entry.values) : Residual(entry.saved, entry.values);
  }

  // Multiplies the values by decay * scale / entry.scale, one rounding each; `residual` is in place then.
  // kRange where one would overflow; then no value has changed.
  static Status rescale(Entry& entry, float scale, float decay, Residual& residual) {
    if (scale == entry.scale && decay == 1.0F) return {};
    stay(residual);
    residual = entry.values;
    assert(std::isfinite(scale) && scale > 0.0F && entry.scale > 0.0F);
    const FloatEnvironment environment;
    // In double, so that neither the factor nor the product is rounded before it becomes a float.
    const double factor = factor_to(entry, scale, decay);
    const auto scaled = [factor](float value) {
      return static_cast<float>(static_cast<double>(value) * factor);
    };
    for (const float value : entry.values) {
      if (std::isfinite(scaled(value))) continue;
      return fail(ErrorCode::kRange, "part '" + entry.name + "': its residual has " + number_text(value) +
                                         " at scale " + number_text(entry.scale) + ", too large for scale " +
                                         number_text(scale) + "; let the scale grow in smaller steps");
    }
    for (float& value : entry.values) value = scaled(value);
    entry.scale = scale;
    return {};
  }

  // What stands before an encoding stays: for one that failed.
  static void stay(const Residual& residual) noexcept {
    assert(residual.before.size() == residual.after.size());
    if (!residual.in_place()) std::ranges::copy(residual.before, residual.after.begin());
  }

  // values[i] += given[i], one rounding, under the defined floating-point mode. Where the sum would not be
  // finite the value stays as it is.
  static void add(Entry& entry, std::span<const float> given) noexcept {
    assert(given.size() == entry.values.size());
    const FloatEnvironment environment;
    for (std::size_t i = 0; i < given.size(); ++i) {
      const float sum = entry.values[i] + given[i];
      if (std::isfinite(sum)) entry.values[i] = sum;
    }
  }

  // Takes an open step back, or lets what it did stand.
  void restore_step() noexcept {
    for (Entry* const entry : in_order_) {
      if (entry->in_step) {
        assert(!entry->on_device || entry->beside);
        if (entry->on_device) {
          entry->on_device.swap(entry->beside);
        } else if (entry->saved.empty()) {
          std::ranges::fill(entry->values, 0.0F);
        } else {
          entry->values.swap(entry->saved);
        }
        entry->scale = entry->saved_scale;
      }
      entry->in_step = false;
      entry->velocity.drop();
    }
  }

  void forget_step() noexcept {
    for (Entry* const entry : in_order_) {
      entry->in_step = false;
      entry->velocity.settle();
    }
  }

  // Those that have something, in the order of (name, first), so that saved states are equal byte for byte.
  std::vector<const Entry*> sorted() const {
    std::vector<const Entry*> all;
    all.reserve(entries_.size());
    for (const auto& [key, entry] : entries_) {
      if (entry->values.size() == entry->elements) all.push_back(entry.get());
    }
    std::ranges::sort(all, {}, [](const Entry* each) { return std::tie(each->name, each->first); });
    return all;
  }

 private:
  static void make_room(std::vector<float>& values, std::size_t count) {
    if (values.capacity() >= count) return;
    values.reserve(count);
    ask_for_huge_pages({reinterpret_cast<std::byte*>(values.data()), sizeof(float) * values.capacity()});
  }

  // The name is the entry's own, or the caller's while it looks for one.
  struct Key {
    std::uint64_t name_hash = 0;
    std::uint64_t first = 0;
    std::string_view name;

    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept {
      return static_cast<std::size_t>(key.name_hash ^ (key.first * 0x9E3779B97F4A7C15));
    }
  };

  std::shared_ptr<MemoryMeter> meter_;
  PartBackend* backend_;
  mutable std::vector<float> copy_;  // values_of()
  std::unordered_map<Key, std::unique_ptr<Entry>, Hash> entries_;
  // The hashes of all entries, modulo its length. Raw parts are looked for in every step and have no entry;
  // with hundreds of entries this spares nearly all of them the table, whose buckets have left the caches by
  // then.
  std::bitset<16384> hashes_;
  std::vector<Entry*> in_order_;  // as they were made
  mutable std::size_t next_ = 0;  // the place of what is looked for next, if parts come in that order again
};

}  // namespace deltawire
