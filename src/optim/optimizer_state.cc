// Saved optimizer states (docs/reference/format.md, "Optimizer state").
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "base/byte_writer.h"
#include "base/checked.h"
#include "base/crc32c.h"
#include "base/format_version.h"
#include "base/little_endian.h"
#include "deltawire/optimizer.h"

namespace deltawire {
namespace {

constexpr std::string_view kMagic = "DWOPTIM\n";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kHeadBytes = 20;       // magic, u32 version, u32 kind, u32 entries
constexpr std::uint64_t kEntryHeadBytes = 20;  // u32 length of the name, u64 steps, u64 count

Status truncated() {
  return fail(ErrorCode::kTruncated, "optimizer state: ends within an entry; the bytes were cut");
}

Status check_head(Bytes state, OptimizerKind kind) {
  if (state.size() < kHeadBytes + 4) {
    return fail(ErrorCode::kTruncated,
                "optimizer state: " + std::to_string(state.size()) + " bytes are too few");
  }
  if (std::memcmp(state.data(), kMagic.data(), kMagic.size()) != 0) {
    return fail(ErrorCode::kCorrupt, "optimizer state: wrong magic; these bytes are not a saved optimizer");
  }
  const auto version = load_le<std::uint32_t>(state.data() + 8);
  if (Status known = check_format_version("optimizer state", version, kVersion); !known) return known;
  const Bytes body = state.first(state.size() - 4);
  if (crc32c(body) != load_le<std::uint32_t>(state.data() + body.size())) {
    return fail(ErrorCode::kCorrupt, "optimizer state: the checksum is wrong; the bytes changed or were cut");
  }
  if (load_le<std::uint32_t>(state.data() + 12) != static_cast<std::uint32_t>(kind)) {
    return fail(ErrorCode::kMismatch,
                "optimizer state: saved by another kind of optimizer; load it with the same kind");
  }
  return {};
}

}  // namespace

std::vector<std::byte> Optimizer::save() const {
  std::uint64_t bytes = kHeadBytes + 4;
  for (const auto& [name, state] : states_) {
    bytes += kEntryHeadBytes + name.size() + 4 * (state.first.size() + state.second.size());
  }
  std::vector<std::byte> out(bytes);
  ByteWriter writer(out.data());
  writer.text(kMagic);
  writer.number<std::uint32_t>(kVersion);
  writer.number<std::uint32_t>(static_cast<std::uint32_t>(settings_.kind));
  writer.number<std::uint32_t>(static_cast<std::uint32_t>(states_.size()));
  for (const auto& [name, state] : states_) {
    writer.number<std::uint32_t>(static_cast<std::uint32_t>(name.size()));
    writer.number<std::uint64_t>(state.steps);
    writer.number<std::uint64_t>(state.count);
    writer.text(name);
    writer.floats(state.first);
    writer.floats(state.second);
  }
  writer.number<std::uint32_t>(crc32c(Bytes(out).first(bytes - 4)));
  return out;
}

Status Optimizer::load(Bytes bytes) {
  if (Status head = check_head(bytes, settings_.kind); !head) return head;
  const auto entries = load_le<std::uint32_t>(bytes.data() + 16);
  const std::uint64_t moments =
      (has_first_moment(settings_.kind) ? 1U : 0U) + (has_second_moment(settings_.kind) ? 1U : 0U);
  Bytes rest = bytes.subspan(kHeadBytes, bytes.size() - kHeadBytes - 4);
  decltype(states_) loaded;
  for (std::uint32_t i = 0; i < entries; ++i) {
    if (rest.size() < kEntryHeadBytes) return truncated();
    const std::uint64_t name_bytes = load_le<std::uint32_t>(rest.data());
    TensorState state;
    state.steps = load_le<std::uint64_t>(rest.data() + 4);
    state.count = load_le<std::uint64_t>(rest.data() + 12);
    rest = rest.subspan(kEntryHeadBytes);
    if (name_bytes > rest.size()) return truncated();
    std::string name(reinterpret_cast<const char*>(rest.data()), name_bytes);
    rest = rest.subspan(name_bytes);
    const auto value_bytes = checked_mul(state.count, 4 * moments);
    if (!value_bytes || *value_bytes > rest.size()) return truncated();
    if (has_first_moment(settings_.kind)) state.first = take_floats(rest, state.count);
    if (has_second_moment(settings_.kind)) state.second = take_floats(rest, state.count);
    const bool in_order = loaded.empty() || loaded.rbegin()->first < name;
    if (!in_order) {
      return fail(ErrorCode::kCorrupt, "optimizer state: tensor '" + name + "' is out of order");
    }
    loaded.emplace_hint(loaded.end(), std::move(name), std::move(state));
  }
  if (!rest.empty()) return fail(ErrorCode::kCorrupt, "optimizer state: bytes beyond the last entry");
  states_ = std::move(loaded);
  return {};
}

}  // namespace deltawire
