// A posted send or receive, or a vote.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <vector>

#include "deltawire/transport.h"

namespace deltawire {

struct Operation {
  enum class Kind : std::uint8_t { kSend, kReceive, kVote };

  Kind kind = Kind::kSend;
  int peer = 0;  // kVote: the first rank whose ballot is missing
  Tag tag = 0;
  std::vector<Bytes> pieces;  // kSend
  MutBytes capacity;          // kReceive
  std::uint64_t length = 0;   // of the message: known from the start (kSend), when done (kReceive)
  bool done = false;
  std::condition_variable* waiter = nullptr;  // of the thread that waits for it

  void finish(std::uint64_t message_length) noexcept {
    length = message_length;
    done = true;
    if (waiter != nullptr) waiter->notify_one();
  }
};

// What a step on a data stream came to.
struct StreamStep {
  enum class Kind : std::uint8_t {
    kMoved,   // something moved, there may be more at once
    kIdle,    // nothing to do until the link is ready or, if not kNever, until `retry_at`
    kPaused,  // receiving only: the next message waits for somebody to post a receive
    kClosed,  // the stream has ended; `error` is the errno, 0 for an ordinary end
    kFailed,  // the peer broke the rules; `failure` says how
  };
  Kind kind = Kind::kMoved;
  Deadline retry_at = Deadline::max();
  int error = 0;
  Error failure;
};

}  // namespace deltawire
