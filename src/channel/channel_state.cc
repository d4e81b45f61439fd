#include "channel/channel_state.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>

#include "base/byte_writer.h"
#include "base/checked.h"
#include "base/crc32c.h"
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
    return fail(ErrorCode::kCorrupt, "channel state: part '" + std::string(name) + "' occurs twice");
  }
  Result<ResidualStore::Entry*> entry = store.obtain(part);
  if (!entry) return forward_error(entry);
  const auto is_legal = [](float given) { return std::isfinite(given) && given > 0.0F; };
  if (!is_legal(scale) || (has_velocity && !is_legal(velocity_scale))) {
    return fail(ErrorCode::kCorrupt, "channel state: part '" + (*entry)->name + "' has no legal scale");
  }
  (*entry)->scale = scale;
  (*entry)->values = take_floats(rest, count);
  if (has_velocity) (*entry)->velocity.load(take_floats(rest, count), velocity_scale);
  (*entry)->count();
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
  if (state.size() < kHeadBytes + 4) {
    return fail(ErrorCode::kTruncated,
                "channel state: " + std::to_string(state.size()) + " bytes are too few");
  }
  if (std::memcmp(state.data(), kMagic.data(), kMagic.size()) != 0) {
    return fail(ErrorCode::kCorrupt, "channel state: wrong magic; these bytes are no saved channel");
  }
  const auto version = load_le<std::uint32_t>(state.data() + 8);
  if (Status known = check_format_version("channel state", version, kVersion); !known) return known;
  const Bytes body = state.first(state.size() - 4);
  if (crc32c(body) != load_le<std::uint32_t>(state.data() + body.size())) {
    return fail(ErrorCode::kCorrupt, "channel state: the checksum is wrong; the bytes changed or were cut");
  }
  if (load_le<std::uint64_t>(state.data() + 16) != params_hash) {
    return fail(ErrorCode::kMismatch,
                "channel state: saved with another codec, parameters or policy; load it with the same spec");
  }
  const auto entries = load_le<std::uint32_t>(state.data() + 12);
  Bytes rest = body.subspan(kHeadBytes);
  for (std::uint32_t i = 0; i < entries; ++i) {
    if (Status loaded = load_entry(rest, store); !loaded) return loaded;
  }
  if (!rest.empty()) return fail(ErrorCode::kCorrupt, "channel state: bytes beyond the last entry");
  return {};
}

}  // namespace deltawire
