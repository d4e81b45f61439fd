#include "elastic/state_transfer.h"

#include <algorithm>
#include <deque>

#include "base/checked.h"
#include "base/errors.h"
#include "deltawire/file.h"

namespace deltawire::elastic {

namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kChunksMax = std::uint64_t{1} << 13;  // of a state; longer ones have longer chunks
constexpr const char* kCodec = "gcomp:lossless=on";  // keeps every bit of any float32, so of any four bytes

// Of a StateArray or a StateRow.
std::uint64_t bytes_of(const auto& array) {
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
      return invalid("state gave '" + array.name + "' with " + std::to_string(array.bytes.size()) +
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
  ASSIGN_OR_RETURN(auto packed, encode_file({.values = bytes.data(), .count = words}, {&words, 1}, kCodec,
                                            {.min_elements = 0}));
  return std::optional(std::move(packed));
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

namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 40;
constexpr std::size_t kGiversMax = 8;  // whom one process takes chunks from at once
constexpr Clock::duration kLook = 50ms;
constexpr Clock::duration kAskAgain = 200ms;  // where a member hasn't got a chunk, or not yet

std::uint64_t bytes_in(const StateLayout& layout) {
  std::uint64_t count = 0;
  for (const StateRow& row : layout.rows) count = sum_or_max(count, bytes_of(row));
  return count;
}

Result<std::vector<std::byte>> unpacked(Bytes packed, std::uint64_t count, const Digest& digest) {
  ASSIGN_OR_RETURN(const auto header, read_file_header(packed));
  const std::uint64_t words = ceil_div(count, 4);
  if (header.count() != words || header.dtype != DType::kF32) {
    return corrupt("a chunk of " + std::to_string(count) + " bytes came with " +
                   std::to_string(header.count()) + " words");
  }
  std::vector<std::byte> bytes(4 * words);
  RETURN_IF_ERROR(decode_file(packed, {.values = bytes.data(), .count = words}));
  bytes.resize(count);
  if (digest_of(bytes) != digest) {
    return corrupt("a chunk of the state does not have the digest that it had");
  }
  return bytes;
}

}  // namespace

Result<StateLayout> state_layout_in(Bytes bytes) {
  ASSIGN_OR_RETURN(auto layout, decode_layout(bytes));
  const std::uint64_t count = bytes_in(layout);
  const bool has_odd_row =
      std::ranges::any_of(layout.rows, [](const StateRow& row) { return row.element_bytes == 0; });
  if (has_odd_row || count > kBytesMax || layout.chunk_bytes < 4 ||
      layout.chunk_bytes > chunk_bytes_of(count)) {
    return corrupt("another member told a state that can't be");
  }
  if (layout.digests.size() != ceil_div(count, layout.chunk_bytes)) {
    return corrupt("another member told a state with other chunks");
  }
  return layout;
}

struct StateReceiver::Shared {
  Mutex mutex;
  std::deque<Digest> missing;  // and not asked for
  std::set<Digest> lacking;    // not taken
  std::map<Digest, Deadline> asked_at;
  std::size_t active = 0;  // threads
  Ending stops;

  // The next one that nobody was asked for, or whose giver is silent.
  std::optional<Digest> next(const std::set<Digest>& refused) {
    const Deadline now = MachineClock::now();
    const MutexLock lock(mutex);
    for (auto each = missing.begin(); each != missing.end(); ++each) {
      const Digest digest = *each;
      if (refused.contains(digest) || !lacking.contains(digest)) continue;
      missing.erase(each);
      asked_at[digest] = now;
      return digest;
    }
    for (auto& [digest, at] : asked_at) {
      if (now <= at + kSilence || refused.contains(digest) || !lacking.contains(digest)) continue;
      at = now;
      return digest;
    }
    return std::nullopt;
  }
  void put_back(const Digest& digest) {
    const MutexLock lock(mutex);
    asked_at.erase(digest);
    if (lacking.contains(digest) && std::ranges::find(missing, digest) == missing.end()) {
      missing.push_back(digest);
    }
  }
  bool has_all() {
    const MutexLock lock(mutex);
    return lacking.empty();
  }
};

Status StateReceiver::take(StateLayout layout, std::span<const Endpoint> doors,
                           const std::function<Status(std::uint64_t)>& look) {
  layout_ = std::move(layout);
  Shared shared;
  for (const Digest& digest : layout_.digests) {
    if (!held_.contains(digest) && shared.lacking.insert(digest).second) shared.missing.push_back(digest);
  }
  Status result;
  {
    Tasks threads;  // joined before `shared` goes; who waits for a frozen member sees the end in a slice
    for (const Endpoint& door : doors.first(std::min(doors.size(), kGiversMax))) {
      threads.start([this, door, &shared] { take_from(door, shared); });
    }
    while (result && !shared.has_all() && threads.running() > 0) {
      std::uint64_t taken = 0;
      {
        const MutexLock lock(shared.mutex);
        taken = taken_;
      }
      result = look(taken);
      if (result) shared.stops.pause(kLook);
    }
    shared.stops.set();
  }
  if (!result) return result;
  if (!shared.lacking.empty()) return fail(ErrorCode::kPeerLost, "no member gives the rest of the state");
  return {};
}

void StateReceiver::take_from(const Endpoint& door, Shared& shared) {
  const auto size_of = [this](const Digest& digest) {
    const std::uint64_t before = (layout_.digests.size() - 1) * layout_.chunk_bytes;
    return digest == layout_.digests.back() ? bytes_in(layout_) - before : layout_.chunk_bytes;
  };
  std::set<Digest> refused;
  std::shared_ptr<PeerLine> line;
  const auto take_one = [&](const Digest& digest) -> Status {
    if (!line) {
      ASSIGN_OR_RETURN(line, caller_.call(door, kSilence, &shared.stops));
    }
    RETURN_IF_ERROR(line->say(Take{digest}));
    ASSIGN_OR_RETURN(const auto answer, line->hear_within(within_, shared.stops));
    if (!std::holds_alternative<Gives>(answer)) {
      refused.insert(digest);
      shared.put_back(digest);
      return {};
    }
    ASSIGN_OR_RETURN(const auto packed, line->receive_bytes(within_, shared.stops));
    ASSIGN_OR_RETURN(auto chunk, unpacked(packed, size_of(digest), digest));
    const MutexLock lock(shared.mutex);
    held_[digest] = std::move(chunk);
    shared.lacking.erase(digest);
    shared.asked_at.erase(digest);
    ++taken_;
    return {};
  };
  while (!shared.stops.is_set() && !shared.has_all()) {
    const auto digest = shared.next(refused);
    if (!digest) {
      refused.clear();
      shared.stops.pause(kAskAgain);
    } else if (!take_one(*digest)) {
      shared.put_back(*digest);
      return;  // others give what it did not
    }
  }
}

StateReceiver::Arrays StateReceiver::arrays() {
  Arrays arrays;
  arrays.bytes.reserve(bytes_in(layout_));
  for (const Digest& digest : layout_.digests) {
    const auto& chunk = held_.at(digest);
    arrays.bytes.insert(arrays.bytes.end(), chunk.begin(), chunk.end());
  }
  Bytes rest = arrays.bytes;
  for (const StateRow& row : layout_.rows) {
    const std::uint64_t count = bytes_of(row);
    arrays.list.push_back({row.name, row.kind, row.element_bytes, row.dims, rest.first(count)});
    rest = rest.subspan(count);
  }
  held_.clear();
  return arrays;
}

}  // namespace deltawire::elastic
