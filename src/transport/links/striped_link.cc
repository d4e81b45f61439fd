#include "transport/links/striped_link.h"

#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>

#include <poll.h>
#include <sys/epoll.h>

#include "base/errors.h"
#include "base/little_endian.h"
#include "transport/process/machine.h"

namespace deltawire {

MutBytes SegmentOrder::room(std::size_t stream, MutBytes into) {
  assert(!into.empty());
  Arrival& arrival = streams_[stream];
  arrival.is_direct = false;
  if (arrival.left == 0) return MutBytes(arrival.header).subspan(arrival.header_bytes);
  if (arrival.next < expected_) {
    arrival.early.clear();  // it came through another stream meanwhile
    repeated_.resize(std::min<std::uint64_t>(arrival.left, expected_ - arrival.next));
    return repeated_;
  }
  if (arrival.next == expected_ && arrival.early.empty()) {
    arrival.is_direct = true;
    return into.first(std::min(into.size(), arrival.left));
  }
  const std::size_t before = arrival.early.size();
  arrival.early.resize(before + arrival.left);
  return MutBytes(arrival.early).subspan(before);
}

bool SegmentOrder::received(std::size_t stream, std::size_t bytes) {
  Arrival& arrival = streams_[stream];
  delivered_ = 0;
  if (arrival.left == 0) {
    arrival.header_bytes += bytes;
    return arrival.header_bytes < arrival.header.size() || read_header(arrival);
  }
  // room() was for all that is left.
  if (!arrival.early.empty()) arrival.early.resize(arrival.early.size() - (arrival.left - bytes));
  arrival.next += bytes;
  arrival.left -= bytes;
  if (arrival.is_direct) {
    delivered_ = bytes;
    expected_ += bytes;
  }
  if (arrival.left == 0) keep(arrival);
  return true;
}

bool SegmentOrder::read_header(Arrival& arrival) const {
  arrival.header_bytes = 0;
  arrival.next = load_le<std::uint64_t>(arrival.header.data());
  arrival.left = load_le<std::uint32_t>(arrival.header.data() + 8);
  const bool is_near = arrival.next <= expected_ || arrival.next - expected_ <= kAheadMax;
  if (arrival.left >= 1 && arrival.left <= Stripe::kBytesMax && is_near) return true;
  arrival.left = 0;
  return false;
}

// Of two that begin at the same place the longer one.
void SegmentOrder::keep(Arrival& arrival) {
  if (arrival.early.empty()) return;
  std::vector<std::byte>& kept = kept_[arrival.next - arrival.early.size()];
  if (kept.size() < arrival.early.size()) kept.swap(arrival.early);
  arrival.early.clear();
}

std::size_t SegmentOrder::take_kept(MutBytes into) noexcept {
  std::size_t taken = 0;
  while (has_kept() && taken < into.size()) {
    const auto first = kept_.begin();
    const std::uint64_t end = first->first + first->second.size();
    if (end > expected_) {
      const std::size_t count = std::min<std::uint64_t>(end - expected_, into.size() - taken);
      std::memcpy(into.data() + taken, first->second.data() + (expected_ - first->first), count);
      taken += count;
      expected_ += count;
    }
    if (end <= expected_) kept_.erase(first);
  }
  return taken;
}

namespace {

// How often acknowledgements are looked for, of which no descriptor tells.
constexpr std::chrono::milliseconds kLookAgain{5};
constexpr std::size_t kStreamsAtOnce = 16;  // of those that are ready

GuardedFd open_epoll() {
  return GuardedFd::open([] { return ::epoll_create1(EPOLL_CLOEXEC); });
}

bool watch(const GuardedFd& epoll, int fd, std::uint32_t events, std::size_t stream) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = stream;
  return ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void ignore(const GuardedFd& epoll, int fd) noexcept {
  (void)::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
}

}  // namespace

Result<std::unique_ptr<Link>> StripedLink::make(std::vector<std::unique_ptr<Link>> links) {
  GuardedFd readable = open_epoll();
  GuardedFd writable = open_epoll();
  bool is_made = readable && writable;
  std::vector<Stream> streams;
  for (std::unique_ptr<Link>& link : links) {
    is_made = is_made && watch(readable, link->fd(), EPOLLIN, streams.size());
    streams.push_back({std::move(link)});
  }
  if (!is_made) {
    return fail(ErrorCode::kSystem,
                "epoll: " + os_error_text(errno) + "; is the limit of open files high enough?");
  }
  return std::unique_ptr<Link>(new StripedLink(std::move(streams), std::move(readable), std::move(writable)));
}

// An epoll descriptor is readable when any that it watches is ready.
short StripedLink::send_events() const noexcept {
  return POLLIN;
}

IoResult StripedLink::send(std::span<const iovec> pieces) noexcept {
  try {
    forget_acknowledged();
    write_all();
    take(pieces);
    if (!orphans_.empty()) write_all();
  } catch (const std::bad_alloc&) {
    return {IoResult::Kind::kError, 0, ENOMEM, kNever};
  }
  const std::size_t total = total_bytes(pieces);
  const std::uint64_t written = std::max(told_, first_unwritten());
  const std::size_t moved = std::min<std::uint64_t>(written - told_, total);
  told_ += moved;
  const bool has_more = taken_ - told_ < total - moved;
  await_room(has_more || told_ == taken_);
  if (moved > 0) return IoResult::moved(moved);
  if (!may_send()) return last_end_;
  return IoResult::would_block(has_more && is_window_full() ? MachineClock::now() + kLookAgain : kNever);
}

// The bytes after those that are in segments already.
void StripedLink::take(std::span<const iovec> pieces) {
  const std::size_t total = total_bytes(pieces);
  const std::size_t known = std::min<std::uint64_t>(taken_ - told_, total);
  PieceReader reader(pieces);
  for (std::size_t skip = known; skip > 0;) skip -= reader.next(skip).size();
  for (std::size_t left = total - known; left > 0 && !is_window_full();) {
    Stream* const stream = next_with_room();
    if (stream == nullptr) return;
    const std::size_t count = std::min(left, Stripe::kBytesMax);
    Stripe segment(taken_, count);
    while (segment.bytes.size() < Stripe::kHeaderBytes + count) {
      const Bytes part = reader.next(Stripe::kHeaderBytes + count - segment.bytes.size());
      segment.bytes.insert(segment.bytes.end(), part.begin(), part.end());
    }
    stream->queue.add(std::move(segment));
    taken_ += count;
    left -= count;
    write(*stream);
  }
}

StripedLink::Stream* StripedLink::next_with_room() noexcept {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    turn_ = (turn_ + 1) % streams_.size();
    Stream& stream = streams_[turn_];
    if (!stream.may_send || !stream.queue.is_written()) continue;
    pollfd entry{stream.link->send_fd(), stream.link->send_events(), 0};
    if (::poll(&entry, 1, 0) > 0) return &stream;
  }
  return nullptr;
}

void StripedLink::write_all() {
  do {
    adopt_orphans();
    for (Stream& stream : streams_) write(stream);
  } while (!orphans_.empty() && may_send());
}

void StripedLink::write(Stream& stream) {
  while (stream.may_send && !stream.queue.is_written()) {
    const IoResult result = stream.link->send_bytes(stream.queue.unwritten());
    if (result.kind == IoResult::Kind::kWouldBlock) return;
    if (result.kind == IoResult::Kind::kOk) {
      stream.queue.wrote(result.bytes);
    } else {
      end_sending(stream, result);
    }
  }
}

void StripedLink::adopt_orphans() {
  while (!orphans_.empty() && may_send()) {
    turn_ = (turn_ + 1) % streams_.size();
    if (!streams_[turn_].may_send) continue;
    streams_[turn_].queue.add(std::move(orphans_.front()));
    orphans_.pop_front();
  }
}

// It may still have received what nobody has read.
void StripedLink::end_sending(Stream& stream, const IoResult& how) {
  if (!std::exchange(stream.may_send, false)) return;
  last_end_ = how;
  if (std::exchange(stream.awaits_room, false)) ignore(writable_, stream.link->send_fd());
  stream.queue.give_all(orphans_);
}

void StripedLink::end(std::size_t number, const IoResult& how) {
  Stream& stream = streams_[number];
  end_sending(stream, how);
  ignore(readable_, stream.link->fd());
  order_.drop(number);
  stream.link.reset();
}

void StripedLink::forget_acknowledged() noexcept {
  oldest_ = taken_;
  for (Stream& stream : streams_) {
    if (stream.may_send) stream.queue.acknowledge(stream.link->unacknowledged());
    oldest_ = stream.queue.oldest(oldest_);
  }
  for (const Stripe& orphan : orphans_) oldest_ = std::min(oldest_, orphan.at);
}

std::uint64_t StripedLink::first_unwritten() const noexcept {
  std::uint64_t first = taken_;
  for (const Stream& stream : streams_) first = stream.queue.first_unwritten(first);
  for (const Stripe& orphan : orphans_) first = std::min(first, orphan.at);
  return first;
}

// A stream without room is waited for if it has something to write, or if more is to be sent.
void StripedLink::await_room(bool for_more) noexcept {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    const bool wanted = stream.may_send && (for_more || !stream.queue.is_written());
    if (wanted == stream.awaits_room) continue;
    if (!wanted) {
      ignore(writable_, stream.link->send_fd());
    } else if (!watch(writable_, stream.link->send_fd(),
                      static_cast<std::uint32_t>(stream.link->send_events()), i)) {
      continue;
    }
    stream.awaits_room = wanted;
  }
}

IoResult StripedLink::recv(MutBytes into) noexcept {
  std::size_t got = 0;
  try {
    for (bool found = true; found && !is_broken_ && got < into.size();) {
      found = false;
      got += order_.take_kept(into.subspan(got));
      if (got < into.size()) got += read_ready(into.subspan(got), found);
    }
    if (!orphans_.empty()) write_all();
  } catch (const std::bad_alloc&) {
    return {IoResult::Kind::kError, 0, ENOMEM, kNever};
  }
  if (got > 0) return IoResult::moved(got);
  if (is_broken_) return {IoResult::Kind::kError, 0, EBADMSG, kNever};
  return has_stream() ? IoResult::would_block() : last_end_;
}

// Reads once from each stream that has something; `found`: whether any had, or has ended.
std::size_t StripedLink::read_ready(MutBytes into, bool& found) {
  std::array<epoll_event, kStreamsAtOnce> ready{};
  const int count = ::epoll_wait(readable_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  std::size_t got = 0;
  for (std::size_t i = 0; i < streams_.size() && got < into.size(); ++i) {
    const bool is_ready = std::any_of(ready.begin(), ready.begin() + std::max(count, 0),
                                      [i](const epoll_event& event) { return event.data.u64 == i; });
    if (!streams_[i].link || (!is_ready && !streams_[i].link->holds_received())) continue;
    got += read(i, into.subspan(got), found);
  }
  return got;
}

// A header, and what follows it. Returns how much went to `into`.
std::size_t StripedLink::read(std::size_t number, MutBytes into, bool& found) {
  std::size_t got = 0;
  for (int part = 0; part < 2 && got < into.size(); ++part) {
    const IoResult result = streams_[number].link->recv(order_.room(number, into.subspan(got)));
    const bool has_ended = result.kind != IoResult::Kind::kOk && result.kind != IoResult::Kind::kWouldBlock;
    found = found || has_ended || result.bytes > 0;
    if (has_ended) {
      end(number, result);
      break;
    }
    is_broken_ = is_broken_ || !order_.received(number, result.bytes);
    if (is_broken_ || result.bytes == 0) break;
    got += order_.delivered();
  }
  return got;
}

// What is written for a stream that has ended, after the caller was told that it is sent.
Deadline StripedLink::pump() noexcept {
  try {
    write_all();
  } catch (const std::bad_alloc&) {
    return MachineClock::now() + kLookAgain;
  }
  const bool is_left = told_ == taken_ && may_send() && first_unwritten() < taken_;
  return is_left ? MachineClock::now() + kLookAgain : kNever;
}

bool StripedLink::delivered() noexcept {
  if (may_send() && first_unwritten() < taken_) return false;
  return std::ranges::all_of(streams_,
                             [](const Stream& stream) { return !stream.link || stream.link->delivered(); });
}

LineState StripedLink::state() const noexcept {
  LineState all;
  all.streams = 0;
  for (const Stream& stream : streams_) {
    if (!stream.link) continue;
    const LineState one = stream.link->state();
    all.congestion_control = one.congestion_control;
    all.segment_bytes = one.segment_bytes;
    all.round_trip = std::max(all.round_trip, one.round_trip);
    all.bytes_sent += one.bytes_sent;
    all.bytes_resent += one.bytes_resent;
    ++all.streams;
  }
  return all;
}

}  // namespace deltawire
