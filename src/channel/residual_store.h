// The residuals of a channel, by part, with the second buffer that an exact revert needs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/memory_meter.h"
#include "deltawire/result.h"

namespace deltawire {

class ResidualStore {
 public:
  struct Entry {
    std::string name;
    std::uint64_t first = 0;
    std::vector<float> values;
    float scale = 1.0F;        // `values` are so many times what they mean (MessageId::scale)
    std::vector<float> saved;  // `values` before the open step; empty if all were 0; for exact reverts only
    float saved_scale = 1.0F;  // and their scale
    bool in_step = false;      // `saved` holds the state to go back to
    MeteredBytes held;

    void count() noexcept { held.set(sizeof(float) * (values.capacity() + saved.capacity())); }
  };

  // Counts what it holds in `meter`, if there is one.
  explicit ResidualStore(std::shared_ptr<MemoryMeter> meter = nullptr) noexcept : meter_(std::move(meter)) {}

  // The part's residual or nullptr. Pointers stay valid until clear().
  Entry* find(std::string_view name, std::uint64_t first) const;

  // The part's residual, made as zeros if there is none. kMismatch if it has another element count.
  Result<Entry*> obtain(std::string_view name, std::uint64_t first, std::uint64_t count);

  // Keeps the entry's values for restore_step(), once a step.
  static void save_for_step(Entry& entry);

  // Multiplies the values by scale / entry.scale, one rounding each. kRange where one would overflow; then
  // nothing has changed.
  static Status rescale(Entry& entry, float scale);

  // values[i] += given[i], one rounding, under the defined floating-point mode. Where the sum would not be
  // finite the value stays as it is. REQUIRES: given has as many elements.
  static void add(Entry& entry, std::span<const float> given) noexcept;

  void restore_step() noexcept;
  void forget_step() noexcept;
  void clear() { entries_.clear(); }

  // In the order of (name, first), so that saved states are equal byte for byte.
  std::vector<const Entry*> sorted() const;

 private:
  static std::string key_of(std::string_view name, std::uint64_t first);

  std::shared_ptr<MemoryMeter> meter_;
  std::unordered_map<std::string, std::unique_ptr<Entry>> entries_;
};

}  // namespace deltawire
