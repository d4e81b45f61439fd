// The residuals of a channel, by part, with the second buffer that an exact revert needs.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "channel/feedback.h"
#include "deltawire/codec.h"
#include "deltawire/part_backend.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

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
  Entry* find(const Named& part) const;

  // The part's residual, made without values if there is none. kMismatch if it has another element count.
  Result<Entry*> obtain(const Named& part);

  // The part's values; empty where there are none. Of a device they are a copy, until the next call.
  std::span<const float> values_of(const Named& part) const;

  // Makes the entry's values, zeros, unless they are there. Only a device's memory may be missing.
  Status fill(Entry& entry) const;

  // Fills `copy`, which is empty and the host's, with what this one has on a device; and the other way round,
  // which empties `copy`.
  Status download(ResidualStore& copy) const;
  Status upload(ResidualStore& copy);

  // By what the values must be multiplied for `scale`, in double.
  static double factor_to(const Entry& entry, float scale, float decay) noexcept;

  // Keeps the entry's values for restore_step(), once a step, and says what to encode with: the kept values,
  // and apart from them the place of the new ones, where no copy was made.
  static Residual keep_for_step(Entry& entry);

  // Multiplies the values by decay * scale / entry.scale, one rounding each; `residual` is in place then.
  // kRange where one would overflow; then no value has changed.
  static Status rescale(Entry& entry, float scale, float decay, Residual& residual);

  // What stands before an encoding stays: for one that failed.
  static void stay(const Residual& residual) noexcept;

  // values[i] += given[i], one rounding, under the defined floating-point mode. Where the sum would not be
  // finite the value stays as it is.
  static void add(Entry& entry, std::span<const float> given) noexcept;

  // Takes an open step back, or lets what it did stand.
  void restore_step() noexcept;
  void forget_step() noexcept;

  // Those that have something, in the order of (name, first), so that saved states are equal byte for byte.
  std::vector<const Entry*> sorted() const;

 private:
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
