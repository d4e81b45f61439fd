#include "linear/key_requests.h"

#include <string>
#include <utility>

#include "base/byte_writer.h"
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/varint.h"
#include "linear/all_to_all.h"
#include "linear/seconds_since.h"
#include "reduce/patterns/owners.h"

namespace deltawire::linear {
namespace {

constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kGapBytesMax = 5;  // a varint of 32 bits
constexpr double kUnchanged = -1;        // instead of the size of a request

// The gaps between positions, the first from 0, as varints, and their CRC-32C. Empty without positions.
std::vector<std::byte> request_of(std::span<const std::uint32_t> places) {
  std::vector<std::byte> bytes;
  if (places.empty()) return bytes;
  std::uint32_t next = 0;
  for (const std::uint32_t place : places) {
    append_varint(bytes, place - next);
    next = place + 1;
  }
  const std::uint32_t checksum = crc32c(bytes);
  bytes.resize(bytes.size() + kChecksumBytes);
  store_le(bytes.data() + bytes.size() - kChecksumBytes, checksum);
  return bytes;
}

// False unless request_of makes these bytes of `count` positions below `end`.
bool read_request(Bytes bytes, std::uint64_t count, std::uint64_t end, std::vector<std::uint32_t>& places) {
  places.clear();
  if (count == 0) return bytes.empty();
  if (bytes.size() < kChecksumBytes) return false;
  Bytes gaps = bytes.first(bytes.size() - kChecksumBytes);
  if (load_le<std::uint32_t>(bytes.data() + gaps.size()) != crc32c(gaps)) return false;
  places.reserve(count);
  std::uint64_t next = 0;
  while (places.size() < count) {
    if (next >= end) return false;
    const auto gap = take_varint(gaps, end - 1 - next);
    if (!gap) return false;
    places.push_back(static_cast<std::uint32_t>(next + *gap));
    next += *gap + 1;
  }
  return gaps.empty();
}

tl::unexpected<Error> bad_request(std::size_t rank) {
  return fail(ErrorCode::kCorrupt, "rank " + std::to_string(rank) +
                                       " asked for weights that its owner doesn't have; start all ranks from "
                                       "one program");
}

}  // namespace

KeyRequests::KeyRequests(const KeyPartition& partition, Exchange& exchange)
    : partition_(partition), exchange_(exchange), asked_of_(world()), asked_by_(world()) {
  const auto owner = static_cast<std::uint32_t>(rank());
  places_ = partition_.first(owner + 1) - partition_.first(owner);
}

KeyRequests::Mark KeyRequests::mark_of(const Request& request) {
  if (request.empty()) return {};
  return {request.size(), load_le<std::uint32_t>(request.data() + request.size() - kChecksumBytes)};
}

Status KeyRequests::ask(std::span<const std::uint32_t> keys, std::optional<std::uint32_t> list,
                        StepCost& cost) {
  const auto begin = Clock::now();
  for (Places& places : asked_of_) places.clear();
  for (const std::uint32_t key : keys) {
    const KeyPartition::Place place = partition_.place_of(key);
    asked_of_[place.shard].push_back(place.at);
  }
  if (list && *list >= lists_.size()) {
    lists_.resize(*list + 1, {std::vector<Mark>(world()), std::vector<Request>(world())});
  }
  std::vector<Request> requests(world());
  std::vector<double> numbers;  // by owner: the number of keys, and the size of the request
  for (std::size_t owner = 0; owner < world(); ++owner) {
    if (asked_of_[owner].size() > kMostElements) {
      return fail(ErrorCode::kLimit, "a batch has more than " + std::to_string(kMostElements) +
                                         " keys of one owner; make batches smaller (--batch)");
    }
    Request& request = requests[owner];
    if (owner != rank()) request = request_of(asked_of_[owner]);
    numbers.push_back(static_cast<double>(asked_of_[owner].size()));
    numbers.push_back(static_cast<double>(request.size()));
    const Mark mark = mark_of(request);
    if (list && std::exchange(lists_[*list].sent[owner], mark) == mark && !request.empty()) {
      numbers.back() = kUnchanged;
      request.clear();
    }
    cost.bytes_sent += request.size();
  }
  cost.bytes_sent += 8 * numbers.size() * (world() - 1);
  cost.encode_seconds += seconds_since(begin);
  const auto sending = Clock::now();
  const auto all = exchange_.gather(numbers);
  if (!all) return forward_error(all);
  if (Status done = exchange_requests(*all, requests, list ? &lists_[*list] : nullptr); !done) return done;
  cost.exchange_seconds += seconds_since(sending);
  return {};
}

Status KeyRequests::exchange_requests(std::span<const double> counts, const std::vector<Request>& requests,
                                      List* list) {
  PeerMessages messages(exchange_.world());
  std::vector<Request> arrived(world());
  std::vector<std::uint64_t> count_of(world());
  for (std::size_t peer = 0; peer < world(); ++peer) {
    if (peer == rank()) continue;
    const double count = counts[2 * (peer * world() + rank())];
    const double bytes = counts[2 * (peer * world() + rank()) + 1];
    if (!(count >= 0 && count <= static_cast<double>(places_))) return bad_request(peer);
    count_of[peer] = static_cast<std::uint64_t>(count);
    messages.send[peer] = {Bytes(requests[peer])};
    if (list != nullptr && bytes == kUnchanged) {
      arrived[peer] = std::move(list->kept[peer]);
      continue;
    }
    if (!(bytes >= 0 && bytes <= kGapBytesMax * count + kChecksumBytes)) return bad_request(peer);
    arrived[peer].resize(static_cast<std::size_t>(bytes));
    messages.receive[peer] = arrived[peer];
  }
  const auto bytes = exchange_.all_to_all(messages);
  if (!bytes) return forward_error(bytes);
  for (std::size_t peer = 0; peer < world(); ++peer) {
    if (peer == rank()) continue;
    if ((*bytes)[peer] != messages.receive[peer].size() ||
        !read_request(arrived[peer], count_of[peer], places_, asked_by_[peer])) {
      return bad_request(peer);
    }
    if (list != nullptr) list->kept[peer] = std::move(arrived[peer]);
  }
  asked_by_[rank()] = asked_of_[rank()];
  return {};
}

}  // namespace deltawire::linear
