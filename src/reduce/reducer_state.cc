#include "reduce/reducer_state.h"

#include <cassert>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "base/format_version.h"
#include "base/little_endian.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kVersion = 1;
// magic, u32 version, u32 world, u64 bytes of the first channel's state, u32 rank, u32 CRC of these
constexpr std::uint64_t kHeadBytes = 32;
constexpr std::uint64_t kCrcAt = 28;
constexpr std::uint32_t kMaxWorld = 65535;  // a frame's header says it in 16 bits

}  // namespace

std::vector<std::byte> pack_reducer_state(const ReducerPlace& place,
                                          const std::vector<std::vector<std::byte>>& channels) {
  assert(place.magic.size() == 8 && !channels.empty() && channels.size() <= 2);
  assert(place.rank >= 0 && (place.rank < place.world || place.world == 0));
  std::vector<std::byte> out(kHeadBytes);
  std::memcpy(out.data(), place.magic.data(), place.magic.size());
  store_le<std::uint32_t>(out.data() + 8, kVersion);
  store_le<std::uint32_t>(out.data() + 12, static_cast<std::uint32_t>(place.world));
  store_le<std::uint64_t>(out.data() + 16, channels.front().size());
  store_le<std::uint32_t>(out.data() + 24, static_cast<std::uint32_t>(place.rank));
  store_le<std::uint32_t>(out.data() + kCrcAt, crc32c(Bytes(out).first(kCrcAt)));
  for (const auto& channel : channels) out.insert(out.end(), channel.begin(), channel.end());
  return out;
}

Result<ReducerState> unpack_reducer_state(Bytes state, std::string_view magic, std::size_t channel_count) {
  assert(magic.size() == 8 && (channel_count == 1 || channel_count == 2));
  if (state.size() < kHeadBytes) return fail(ErrorCode::kTruncated, "reducer state: too few bytes");
  if (std::memcmp(state.data(), magic.data(), magic.size()) != 0) {
    return fail(ErrorCode::kCorrupt,
                "reducer state: wrong magic; these bytes are no saved reducer of this "
                "pattern");
  }
  const auto version = load_le<std::uint32_t>(state.data() + 8);
  if (Status known = check_format_version("reducer state", version, kVersion); !known)
    return forward_error(known);
  if (crc32c(state.first(kCrcAt)) != load_le<std::uint32_t>(state.data() + kCrcAt)) {
    return fail(ErrorCode::kCorrupt, "reducer state: the checksum of its head is wrong; the bytes changed");
  }
  const auto first_bytes = load_le<std::uint64_t>(state.data() + 16);
  const Bytes rest = state.subspan(kHeadBytes);
  if (first_bytes > rest.size()) return fail(ErrorCode::kTruncated, "reducer state: ends within a channel");
  const auto world = load_le<std::uint32_t>(state.data() + 12);
  const auto rank = load_le<std::uint32_t>(state.data() + 24);
  const bool no_step_yet = world == 0 && rank == 0;
  if (world > kMaxWorld || (rank >= world && !no_step_yet) ||
      (channel_count == 1 && first_bytes != rest.size())) {
    return fail(ErrorCode::kCorrupt, "reducer state: its head contradicts itself");
  }
  ReducerState parts;
  parts.world = static_cast<int>(world);
  parts.rank = static_cast<int>(rank);
  parts.channels.push_back(channel_count == 1 ? rest : rest.first(first_bytes));
  if (channel_count == 2) parts.channels.push_back(rest.subspan(first_bytes));
  return parts;
}

Result<std::vector<std::byte>> without_first_channel(Bytes state) {
  if (state.size() < kHeadBytes) return fail(ErrorCode::kTruncated, "reducer state: too few bytes");
  const auto first_bytes = load_le<std::uint64_t>(state.data() + 16);
  const Bytes rest = state.subspan(kHeadBytes);
  if (first_bytes > rest.size()) return fail(ErrorCode::kTruncated, "reducer state: ends within a channel");
  std::vector<std::byte> out(state.begin(), state.begin() + kHeadBytes);
  store_le<std::uint64_t>(out.data() + 16, 0);
  store_le<std::uint32_t>(out.data() + kCrcAt, crc32c(Bytes(out).first(kCrcAt)));
  const Bytes kept = rest.subspan(first_bytes);
  out.insert(out.end(), kept.begin(), kept.end());
  return out;
}

Result<std::vector<std::vector<std::byte>>> save_channels(
    std::span<const std::unique_ptr<Channel>> channels) {
  std::vector<std::vector<std::byte>> states;
  for (const auto& each : channels) {
    auto state = each->save();
    if (!state) return forward_error(state);
    states.push_back(std::move(*state));
  }
  return states;
}

Status load_channels(std::span<const std::unique_ptr<Channel>> channels,
                     const std::function<Status(std::size_t)>& load_channel) {
  const auto before = save_channels(channels);
  if (!before) return forward_error(before);
  for (std::size_t i = 0; i < channels.size(); ++i) {
    Status loaded = load_channel(i);
    if (loaded) continue;
    for (std::size_t k = 0; k < i; ++k) (void)channels[k]->load((*before)[k]);
    return loaded;
  }
  return {};
}

}  // namespace deltawire
