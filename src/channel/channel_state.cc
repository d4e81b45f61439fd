#include "channel/channel_state.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/byte_writer.h"
#include "base/checked.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "base/format_version.h"
#include "base/little_endian.h"

namespace deltawire {

namespace {

constexpr std::string_view kMagic = "DWSTATE\n";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kHeadBytes = 24;  // magic, u32 version, u32 entries, u64 params_hash

// u32 length of the name, u64 first, u64 count, f32 scale, f32 scale of the momentum
constexpr std::uint64_t kEntryHeadBytes = 28;

Status load_entry(Bytes& rest, ResidualStore& store) {
  const auto truncated = [] { return fail(ErrorCode::kTruncated, "channel state: ends within an entry"); };
  if (rest.size() < kEntryHeadBytes) return truncated();
  const std::uint64_t name_bytes = load_le<std::uint32_t>(rest.data());
  const auto first = load_le<std::uint64_t>(rest.data() + 4);
  const auto count = load_le<std::uint64_t>(rest.data() + 12);
  const float scale = std::bit_cast<float>(load_le<std::uint32_t>(rest.data() + 20));
  const float velocity_scale = std::bit_cast<float>(load_le<std::uint32_t>(rest.data() + 24));
  rest = rest.subspan(kEntryHeadBytes);
  if (name_bytes > rest.size()) return truncated();
  const std::string_view name(reinterpret_cast<const char*>(rest.data()), name_bytes);
  rest = rest.subspan(name_bytes);
  const bool has_velocity = std::bit_cast<std::uint32_t>(velocity_scale) != 0;
  const auto value_bytes = checked_mul(count, has_velocity ? 8 : 4);
  if (!value_bytes || *value_bytes > rest.size()) return truncated();
  const Named part{name, {nullptr, count, DType::kF32}, first};
  if (store.find(part) != nullptr) {
    return corrupt("channel state: part '" + std::string(name) + "' occurs twice");
  }
  ASSIGN_OR_RETURN(auto* const entry, store.obtain(part));
  const auto is_legal = [](float given) { return std::isfinite(given) && given > 0.0F; };
  if (!is_legal(scale) || (has_velocity && !is_legal(velocity_scale))) {
    return corrupt("channel state: part '" + entry->name + "' has no legal scale");
  }
  entry->scale = scale;
  entry->values = take_floats(rest, count);
  if (has_velocity) entry->velocity.load(take_floats(rest, count), velocity_scale);
  entry->count();
  return {};
}

}  // namespace

std::vector<std::byte> save_residuals(const ResidualStore& store, std::uint64_t params_hash) {
  const auto entries = store.sorted();
  std::uint64_t bytes = kHeadBytes + 4;
  for (const ResidualStore::Entry* entry : entries) {
    bytes +=
        kEntryHeadBytes + entry->name.size() + 4 * (entry->values.size() + entry->velocity.values().size());
  }
  std::vector<std::byte> out(bytes);
  ByteWriter writer(out);
  writer.text(kMagic);
  writer.number<std::uint32_t>(kVersion);
  writer.number<std::uint32_t>(static_cast<std::uint32_t>(entries.size()));
  writer.number<std::uint64_t>(params_hash);
  for (const ResidualStore::Entry* entry : entries) {
    assert(entry->velocity.values().empty() || entry->velocity.values().size() == entry->values.size());
    writer.number<std::uint32_t>(static_cast<std::uint32_t>(entry->name.size()));
    writer.number<std::uint64_t>(entry->first);
    writer.number<std::uint64_t>(entry->values.size());
    writer.number(std::bit_cast<std::uint32_t>(entry->scale));
    const std::span<const float> velocity = entry->velocity.values();
    writer.number(std::bit_cast<std::uint32_t>(velocity.empty() ? 0.0F : entry->velocity.scale()));
    writer.text(entry->name);
    writer.floats(entry->values);
    writer.floats(velocity);
  }
  writer.number<std::uint32_t>(crc32c(Bytes(out).first(bytes - 4)));
  return out;
}

Status load_residuals(Bytes state, std::uint64_t params_hash, ResidualStore& store) {
  ASSIGN_OR_RETURN(Bytes rest, body_of_state("channel state", state, kMagic, kVersion, kHeadBytes));
  if (load_le<std::uint64_t>(state.data() + 16) != params_hash) {
    return mismatch(
        "channel state: saved with another codec, parameters or policy; load it with the same spec");
  }
  const auto entries = load_le<std::uint32_t>(state.data() + 12);
  for (std::uint32_t i = 0; i < entries; ++i) {
    RETURN_IF_ERROR(load_entry(rest, store));
  }
  if (!rest.empty()) return corrupt("channel state: bytes beyond the last entry");
  return {};
}

namespace {

// Of the elements of a part, in the scale of the first that was added. Empty: nothing was.
class WeightedSum {
 public:
  // values[i] counts for element at + i of `count`.
  void add(std::span<const float> values, std::uint64_t at, std::uint64_t count, double factor, float scale) {
    if (sums_.empty()) {
      sums_.assign(count, 0.0);
      scale_ = scale;
    }
    assert(sums_.size() == count && at + values.size() <= count);
    factor *= static_cast<double>(scale_) / static_cast<double>(scale);
    for (std::size_t i = 0; i < values.size(); ++i) sums_[at + i] += factor * static_cast<double>(values[i]);
  }

  bool empty() const noexcept { return sums_.empty(); }
  float scale() const noexcept { return scale_; }
  // One rounding each.
  std::vector<float> rounded() const {
    std::vector<float> values(sums_.size());
    std::ranges::transform(sums_, values.begin(), [](double sum) { return static_cast<float>(sum); });
    return values;
  }

 private:
  std::vector<double> sums_;
  float scale_ = 1.0F;
};

struct PartSum {
  const Named* part = nullptr;
  WeightedSum residual;
  WeightedSum velocity;
};

struct Tensor {
  std::uint64_t elements = 0;
  std::vector<PartSum> parts;
};

class Adder {
 public:
  explicit Adder(const CutTensors& wanted) {
    for (const Named& tensor : wanted.tensors) tensors_[tensor.name].elements = tensor.tensor.elements();
    for (const Named& part : wanted.parts) tensors_[part.name].parts.push_back({&part, {}, {}});
  }

  Status add(const ResidualStore& saved, double weight) {
    const ResidualStore::Entry* before = nullptr;
    for (const ResidualStore::Entry* entry : saved.sorted()) {
      const auto tensor = tensors_.find(entry->name);
      const auto end = checked_add(entry->first, entry->values.size());
      if (tensor == tensors_.end() || !end || *end > tensor->second.elements) return foreign(*entry);
      if (before != nullptr && before->name == entry->name &&
          before->first + before->values.size() > entry->first) {
        return corrupt("channel state: parts of '" + entry->name + "' overlap");
      }
      before = entry;
      for (PartSum& sum : tensor->second.parts) add_overlap(*entry, weight, sum);
    }
    return {};
  }

  Status store_in(ResidualStore& store) const {
    const auto all_finite = [](std::span<const float> values) {
      return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
    };
    for (const auto& [name, tensor] : tensors_) {
      for (const PartSum& sum : tensor.parts) {
        if (sum.residual.empty()) continue;
        std::vector<float> velocity = sum.velocity.rounded();
        ASSIGN_OR_RETURN(auto* const entry, store.obtain(*sum.part));
        entry->values = sum.residual.rounded();
        entry->scale = sum.residual.scale();
        if (!all_finite(entry->values) || !all_finite(velocity)) {
          return fail(ErrorCode::kRange, "tensor '" + std::string(name) +
                                             "': what the saved ranks keep of it is not finite, or too large "
                                             "in sum; go on without these states");
        }
        if (!velocity.empty()) entry->velocity.load(std::move(velocity), sum.velocity.scale());
        entry->count();
      }
    }
    return {};
  }

 private:
  static void add_overlap(const ResidualStore::Entry& entry, double weight, PartSum& sum) {
    const std::uint64_t count = sum.part->tensor.elements();
    const std::uint64_t begin = std::max(entry.first, sum.part->first);
    const std::uint64_t end = std::min(entry.first + entry.values.size(), sum.part->first + count);
    if (begin >= end) return;
    const auto overlap = [&](std::span<const float> values) {
      return values.subspan(begin - entry.first, end - begin);
    };
    const std::uint64_t at = begin - sum.part->first;
    sum.residual.add(overlap(entry.values), at, count, weight, entry.scale);
    const std::span<const float> velocity = entry.velocity.values();
    if (!velocity.empty()) sum.velocity.add(overlap(velocity), at, count, weight, entry.velocity.scale());
  }

  static Status foreign(const ResidualStore::Entry& entry) {
    return mismatch("the state has a residual of elements " + std::to_string(entry.first) + " to " +
                    std::to_string(entry.first + entry.values.size()) + " of '" + entry.name +
                    "', which the job doesn't exchange; load it into the model that it was saved with");
  }

  std::unordered_map<std::string_view, Tensor> tensors_;
};

}  // namespace

Status add_weighted(std::span<const WeightedState> states, const CutTensors& wanted,
                    std::uint64_t params_hash, ResidualStore& store) {
  const FloatEnvironment environment;
  Adder adder(wanted);
  for (const WeightedState& each : states) {
    ResidualStore saved;
    RETURN_IF_ERROR(load_residuals(each.state, params_hash, saved));
    RETURN_IF_ERROR(adder.add(saved, each.weight));
  }
  return adder.store_in(store);
}

}  // namespace deltawire
