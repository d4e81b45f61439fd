#include "channel/residual_store.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/errors.h"
#include "base/float_environment.h"
#include "codecs/spec_string.h"
#include "deltawire/huge_pages.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

void make_room(std::vector<float>& values, std::size_t count) {
  if (values.capacity() >= count) return;
  values.reserve(count);
  ask_for_huge_pages({reinterpret_cast<std::byte*>(values.data()), sizeof(float) * values.capacity()});
}

}  // namespace

ResidualStore::Entry* ResidualStore::find(const Named& part) const {
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

Result<ResidualStore::Entry*> ResidualStore::obtain(const Named& part) {
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

std::span<const float> ResidualStore::values_of(const Named& part) const {
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

Status ResidualStore::fill(Entry& entry) const {
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

Status ResidualStore::download(ResidualStore& copy) const {
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

Status ResidualStore::upload(ResidualStore& copy) {
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

double ResidualStore::factor_to(const Entry& entry, float scale, float decay) noexcept {
  return static_cast<double>(decay) * static_cast<double>(scale) /
         static_cast<double>(FloatEnvironment::pinned(entry.scale));
}

Residual ResidualStore::keep_for_step(Entry& entry) {
  if (entry.in_step) return entry.values;
  assert(entry.values.size() == entry.elements);
  const bool nothing_waits =
      std::ranges::all_of(entry.values, [](float value) { return std::bit_cast<std::uint32_t>(value) == 0; });
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

void ResidualStore::stay(const Residual& residual) noexcept {
  assert(residual.before.size() == residual.after.size());
  if (!residual.in_place()) std::ranges::copy(residual.before, residual.after.begin());
}

Status ResidualStore::rescale(Entry& entry, float scale, float decay, Residual& residual) {
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

void ResidualStore::add(Entry& entry, std::span<const float> given) noexcept {
  assert(given.size() == entry.values.size());
  const FloatEnvironment environment;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const float sum = entry.values[i] + given[i];
    if (std::isfinite(sum)) entry.values[i] = sum;
  }
}

void ResidualStore::restore_step() noexcept {
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

void ResidualStore::forget_step() noexcept {
  for (Entry* const entry : in_order_) {
    entry->in_step = false;
    entry->velocity.settle();
  }
}

std::vector<const ResidualStore::Entry*> ResidualStore::sorted() const {
  std::vector<const Entry*> all;
  all.reserve(entries_.size());
  for (const auto& [key, entry] : entries_) {
    if (entry->values.size() == entry->elements) all.push_back(entry.get());
  }
  std::ranges::sort(all, {}, [](const Entry* each) { return std::tie(each->name, each->first); });
  return all;
}

}  // namespace deltawire
