#include "linear/plain_pairs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "base/errors.h"
#include "linear/seconds_since.h"

namespace deltawire::linear {

namespace {

static_assert(std::endian::native == std::endian::little);

Status check_keys(const Pairs& pairs, std::uint64_t dimension, std::size_t rank) {
  bool grow = true;
  for (std::size_t i = 1; i < pairs.keys.size(); ++i) grow = grow && pairs.keys[i - 1] < pairs.keys[i];
  if (grow && (pairs.keys.empty() || pairs.keys.back() < dimension)) return {};
  return corrupt("rank " + std::to_string(rank) +
                 " sent keys that don't grow below the dimension; start all ranks from "
                 "one program");
}

Pairs merged(const Pairs& a, const Pairs& b) {
  Pairs sum{.keys = {}, .values = {}, .dimension = a.dimension};
  sum.keys.reserve(a.keys.size() + b.keys.size());
  sum.values.reserve(a.keys.size() + b.keys.size());
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.keys.size() || j < b.keys.size()) {
    const bool from_a = j == b.keys.size() || (i < a.keys.size() && a.keys[i] <= b.keys[j]);
    const bool from_b = i == a.keys.size() || (j < b.keys.size() && b.keys[j] <= a.keys[i]);
    sum.keys.push_back(from_a ? a.keys[i] : b.keys[j]);
    sum.values.push_back((from_a ? a.values[i] : 0.0F) + (from_b ? b.values[j] : 0.0F));
    i += from_a ? 1 : 0;
    j += from_b ? 1 : 0;
  }
  return sum;
}

// Sends this rank's list to all others and receives theirs into `lists`, which have their sizes already.
Status exchange_lists(Transport& transport, Tag tag, Deadline deadline, std::vector<Pairs>& lists) {
  const auto own_rank = static_cast<std::size_t>(transport.rank());
  std::vector<std::vector<std::uint32_t>> words(lists.size());
  std::vector<MutBytes> receive(lists.size());
  for (std::size_t peer = 0; peer < lists.size(); ++peer) {
    words[peer].resize(2 * lists[peer].keys.size());
    receive[peer] = std::as_writable_bytes(std::span(words[peer]));
  }
  const std::array pieces{std::as_bytes(std::span(lists[own_rank].keys)),
                          std::as_bytes(std::span(lists[own_rank].values))};
  RETURN_IF_ERROR(all_to_all(transport, tag, deadline, pieces, receive));
  for (std::size_t peer = 0; peer < lists.size(); ++peer) {
    if (peer == own_rank) continue;
    const auto middle = words[peer].begin() + static_cast<std::ptrdiff_t>(lists[peer].keys.size());
    lists[peer].keys.assign(words[peer].begin(), middle);
    for (std::size_t i = 0; i < lists[peer].values.size(); ++i) {
      lists[peer].values[i] = std::bit_cast<float>(middle[static_cast<std::ptrdiff_t>(i)]);
    }
    RETURN_IF_ERROR(check_keys(lists[peer], lists[own_rank].dimension, peer));
  }
  return {};
}

}  // namespace

Result<Report> average_plain_pairs(Transport& transport, std::span<const double> counts, Tag tag,
                                   Deadline deadline, Pairs& gradient) {
  Report report;
  const auto begin = Clock::now();
  std::vector<Pairs> lists(counts.size());
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    const double most = static_cast<double>(gradient.dimension);
    if (!(counts[rank] >= 0 && counts[rank] <= most)) {
      return corrupt("rank " + std::to_string(rank) +
                     " announces more pairs than there are weights; start all ranks "
                     "from one program");
    }
    lists[rank].keys.resize(static_cast<std::size_t>(counts[rank]));
    lists[rank].values.resize(lists[rank].keys.size());
  }
  const auto own = static_cast<std::size_t>(transport.rank());
  report.bytes_sent = 8 * gradient.keys.size() * (lists.size() - 1);
  report.raw_bytes = report.bytes_sent / 2;
  lists[own] = std::move(gradient);
  const std::uint64_t dimension = lists[own].dimension;
  RETURN_IF_ERROR(exchange_lists(transport, tag, deadline, lists));
  report.exchange_seconds = seconds_since(begin);
  Pairs sum{.keys = {}, .values = {}, .dimension = dimension};
  for (const Pairs& list : lists) sum = merged(sum, list);
  for (float& value : sum.values) value /= static_cast<float>(lists.size());
  gradient = std::move(sum);
  report.decode_seconds = seconds_since(begin) - report.exchange_seconds;
  return report;
}

Result<std::vector<std::uint64_t>> all_to_all(Transport& transport, Tag tag, Deadline deadline,
                                              std::span<const Bytes> own, std::span<const MutBytes> receive) {
  const bool sends = std::ranges::any_of(own, [](Bytes piece) { return !piece.empty(); });
  std::vector<Handle> received(receive.size(), Handle::kNone);
  std::vector<Handle> sent(receive.size(), Handle::kNone);
  for (std::size_t peer = 0; peer < sent.size(); ++peer) {
    const int number = static_cast<int>(peer);
    if (number == transport.rank()) continue;
    if (!receive[peer].empty()) received[peer] = transport.post_recv(number, tag, receive[peer]);
    if (sends) sent[peer] = transport.post_send(number, tag, own);
  }
  std::vector<std::uint64_t> bytes(sent.size(), 0);
  Status done;
  // Wait for all of them even after an error: their buffers are the caller's.
  for (std::size_t peer = 0; peer < sent.size(); ++peer) {
    for (const Handle handle : {received[peer], sent[peer]}) {
      if (handle == Handle::kNone) continue;
      const auto got = transport.wait(handle, deadline);
      if (!got && done) done = forward_error(got);
      if (got && handle == received[peer]) bytes[peer] = *got;
    }
  }
  if (!done) return forward_error(done);
  return bytes;
}

}  // namespace deltawire::linear
