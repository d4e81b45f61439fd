#include <algorithm>

#include "base/checked.h"
#include "deltawire/file.h"
#include "elastic/state_transfer.h"

namespace deltawire::elastic {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kChunksMax = std::uint64_t{1} << 13;  // of a state; longer ones have longer chunks
constexpr const char* kCodec = "gcomp:lossless=on";  // keeps every bit of any float32, so of any four bytes

std::uint64_t bytes_of(const StateArray& array) {
  std::uint64_t bytes = array.element_bytes;
  for (const std::uint64_t dim : array.dims) bytes = product_or_max(bytes, dim);
  return bytes;
}

}  // namespace

std::uint64_t chunk_bytes_of(std::uint64_t count) noexcept {
  return std::max(kChunkBytes, 4 * ceil_div(count, 4 * kChunksMax));
}

Result<std::shared_ptr<const StateSender>> StateSender::make(std::vector<StateArray> arrays,
                                                             std::uint64_t chunk_bytes) {
  auto sender = std::make_shared<StateSender>();
  for (const StateArray& array : arrays) {
    if (array.element_bytes == 0 || bytes_of(array) != array.bytes.size()) {
      return fail(ErrorCode::kInvalidArgument, "state gave '" + array.name + "' with " +
                                                   std::to_string(array.bytes.size()) +
                                                   " bytes, which its dims and element_bytes are not");
    }
    sender->count_ += array.bytes.size();
    sender->layout_.rows.push_back({array.name, array.kind, array.element_bytes, array.dims});
  }
  sender->arrays_ = std::move(arrays);
  StateLayout& layout = sender->layout_;
  layout.chunk_bytes = chunk_bytes != 0 ? chunk_bytes : chunk_bytes_of(sender->count_);
  for (std::uint64_t at = 0; at < sender->count_; at += layout.chunk_bytes) {
    layout.digests.push_back(digest_of(sender->bytes_at(at)));
    sender->starts_[layout.digests.back()] = at;
  }
  return std::shared_ptr<const StateSender>(std::move(sender));
}

Result<std::optional<std::vector<std::byte>>> StateSender::chunk(const Digest& digest) const {
  const auto start = starts_.find(digest);
  if (start == starts_.end()) return std::nullopt;
  std::vector<std::byte> bytes = bytes_at(start->second);
  bytes.resize(4 * ceil_div(bytes.size(), 4));
  const std::uint64_t words = bytes.size() / 4;
  auto packed =
      encode_file({.values = bytes.data(), .count = words}, {&words, 1}, kCodec, {.min_elements = 0});
  if (!packed) return forward_error(packed);
  return std::optional(*std::move(packed));
}

std::vector<std::byte> StateSender::bytes_at(std::uint64_t start) const {
  const std::uint64_t end = std::min(start + layout_.chunk_bytes, count_);
  std::vector<std::byte> bytes;
  bytes.reserve(end - start);
  std::uint64_t first = 0;  // of the array
  for (const StateArray& array : arrays_) {
    const std::uint64_t begin = std::max(start, first) - first;
    const std::uint64_t stop = std::min(end, first + array.bytes.size());
    if (first + begin < stop) {
      const Bytes part = array.bytes.subspan(begin, stop - first - begin);
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    first += array.bytes.size();
  }
  return bytes;
}

void give_chunks(PeerLine& line, Take first, const std::function<std::shared_ptr<const StateSender>()>& offer,
                 Clock::duration within, const Ending& ending) {
  Message message = first;
  while (const auto* const take = std::get_if<Take>(&message)) {
    Result<std::optional<std::vector<std::byte>>> chunk(std::nullopt);
    if (const auto sender = offer()) chunk = sender->chunk(take->digest);  // let go of before anybody waits
    const bool has_it = chunk && *chunk;
    if (!line.say(has_it ? Message(Gives{}) : Message(Lacks{}))) return;
    if (has_it && !line.send_bytes(**chunk, within, ending)) return;
    auto next = line.hear_within(within, ending);
    if (!next) return;
    message = *std::move(next);
  }
}

}  // namespace deltawire::elastic
