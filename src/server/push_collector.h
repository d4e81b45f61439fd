// The pushes of one part on a server, collected until a step has enough of them.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "deltawire/codec.h"
#include "deltawire/frame.h"
#include "deltawire/result.h"
#include "deltawire/transport.h"
#include "server/served_model.h"

namespace deltawire {

// A push that could not be decoded.
struct BadPush {
  std::size_t worker = 0;
  Error error;
};

// One push a worker at a time. It keeps the handles of receives, but makes no call of the transport.
class PushCollector {
 public:
  enum class Arrival : std::uint8_t {
    kInTime,  // it waits here for its step
    kLate,    // its step was made without it; its worker keeps the gradient
    kSkips,   // the worker pushes nothing for this step, or for one that was made
    kClosed,  // the worker pushes no more
  };
  using Decode = std::function<Status(std::size_t worker, Bytes push, Into into, float scale)>;

  // `workers` must outlive it.
  explicit PushCollector(const WorkerGroup& workers) : workers_(workers), inboxes_(workers.size()) {}

  // Memory of `bytes` at least for the worker's next push, and the receive that will fill it.
  MutBytes room(std::size_t worker, std::uint64_t bytes) {
    assert(!inboxes_[worker].is_here && inboxes_[worker].receive == Handle::kNone);
    std::vector<std::byte>& memory = inboxes_[worker].memory;
    if (memory.size() < bytes) memory.resize(bytes);
    return memory;
  }

  void await(std::size_t worker, Handle receive) noexcept {
    assert(inboxes_[worker].receive == Handle::kNone && !inboxes_[worker].is_here);
    inboxes_[worker].receive = receive;
  }

  // Whether the worker's next push may still come.
  bool is_awaited(std::size_t worker) const noexcept {
    const Inbox& inbox = inboxes_[worker];
    return !inbox.is_here && !inbox.skips && !inbox.is_closed && !workers_.is_dropped(worker);
  }

  Handle receive(std::size_t worker) const noexcept { return inboxes_[worker].receive; }
  Handle take_receive(std::size_t worker) noexcept {
    return std::exchange(inboxes_[worker].receive, Handle::kNone);
  }

  // A push of so many bytes, or a SkipMessage, lies in the worker's room. `step` is the one that collects;
  // nullopt when the server closes, and every push is late. Errors: those of FrameReader::open and read_skip;
  // kMismatch for a later step.
  Result<Arrival> arrive(std::size_t worker, std::uint64_t bytes, std::optional<std::uint64_t> step) {
    Inbox& inbox = inboxes_[worker];
    assert(!inbox.is_here && !inbox.is_closed && bytes <= inbox.memory.size());
    inbox.bytes = bytes;
    if (bytes == 0) {
      inbox.is_closed = true;
      return Arrival::kClosed;
    }
    ASSIGN_OR_RETURN(const std::uint64_t pushed, step_of(Bytes(inbox.memory).first(bytes)));
    if (step && pushed > *step) {
      return mismatch("it is for step " + std::to_string(pushed) + " in step " + std::to_string(*step));
    }
    const bool is_in_time = step && pushed == *step;
    if (is_skip(bytes)) {
      inbox.skips = is_in_time;
      return Arrival::kSkips;
    }
    inbox.is_here = is_in_time;
    return is_in_time ? Arrival::kInTime : Arrival::kLate;
  }

  // Whether the step has the pushes that it waits for. Those of dropped workers count in the mean, but the
  // others are waited for all the same. Who skips a step has it for another part: so it is made for this one
  // with the pushes that are here, or none, if no more can come.
  bool has_enough() const noexcept {
    return waiting() >= workers_.needed() || (is_skipped() && awaited() == 0);
  }

  // Whether it can still get them.
  bool may_have_enough() const noexcept { return waiting() + awaited() >= workers_.needed() || is_skipped(); }

  // Decodes the pushes in rank order, each times 1 / their number. The first one that fails leaves the step
  // and is returned; then the mean is not made.
  std::optional<BadPush> average(const Decode& decode) {
    const float scale = 1.0F / static_cast<float>(std::ranges::count_if(inboxes_, &Inbox::is_here));
    Into into = Into::kOverwrite;
    for (std::size_t worker = 0; worker < inboxes_.size(); ++worker) {
      Inbox& inbox = inboxes_[worker];
      if (!inbox.is_here) continue;
      if (Status added = decode(worker, Bytes(inbox.memory).first(inbox.bytes), into, scale); !added) {
        inbox.is_here = false;
        return BadPush{worker, std::move(added.error())};
      }
      into = Into::kAccumulate;
    }
    return std::nullopt;
  }

  // Whether no push of this step is here.
  bool is_empty() const noexcept { return std::ranges::none_of(inboxes_, &Inbox::is_here); }

  // The pushes that are here have counted; the next step begins.
  void end_step() noexcept {
    for (Inbox& inbox : inboxes_) {
      inbox.has_counted = std::exchange(inbox.is_here, false);
      inbox.skips = false;
    }
  }

  // Whether the worker's push counted in the last step that ended.
  bool has_counted(std::size_t worker) const noexcept { return inboxes_[worker].has_counted; }
  // Takes the worker's push out of the step; false: it had none.
  bool discard(std::size_t worker) noexcept {
    inboxes_[worker].skips = false;
    return std::exchange(inboxes_[worker].is_here, false);
  }

 private:
  // The step of what has come: a push, or the word that there is none.
  static Result<std::uint64_t> step_of(Bytes message) {
    if (is_skip(message.size())) return read_skip(message);
    ASSIGN_OR_RETURN(const FrameReader frame, FrameReader::open(message));
    return frame.header().message.step;
  }

  // Pushes of workers that are left.
  std::size_t waiting() const noexcept {
    std::size_t here = 0;
    for (std::size_t worker = 0; worker < inboxes_.size(); ++worker) {
      if (inboxes_[worker].is_here && !workers_.is_dropped(worker)) ++here;
    }
    return here;
  }

  std::size_t awaited() const noexcept {
    std::size_t awaited = 0;
    for (std::size_t worker = 0; worker < inboxes_.size(); ++worker) {
      if (is_awaited(worker)) ++awaited;
    }
    return awaited;
  }

  bool is_skipped() const noexcept { return std::ranges::any_of(inboxes_, &Inbox::skips); }

  struct Inbox {
    std::vector<std::byte> memory;
    Handle receive = Handle::kNone;
    std::uint64_t bytes = 0;
    bool is_here = false;  // a push of this step, not yet averaged
    bool skips = false;    // this step
    bool is_closed = false;
    bool has_counted = false;
  };

  const WorkerGroup& workers_;
  std::vector<Inbox> inboxes_;  // by worker
};

}  // namespace deltawire
