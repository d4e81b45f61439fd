// For tests of the handshake: one end of it, and bytes that come in pieces.
#pragma once

#include <algorithm>
#include <cstddef>

#include <unistd.h>

#include "transport/tcp/handshake.h"

namespace deltawire {

// Gives `bytes` to one end, at most `piece` at a time, as far as it wants them.
inline Exchange give(Handshake& end, Bytes bytes, std::size_t piece = 1000000) {
  Exchange state = Exchange::kMore;
  while (!bytes.empty() && state == Exchange::kMore && !end.room().empty()) {
    const std::size_t length = std::min({piece, bytes.size(), end.room().size()});
    std::ranges::copy(bytes.first(length), end.room().begin());
    state = end.received(length);
    bytes = bytes.subspan(length);
  }
  return state;
}

// advance_handshake() of a test that is a rank itself, with a socket of its own.
inline Exchange advance_handshake(Handshake& handshake, int fd) {
  return advance_handshake(handshake, Connection(GuardedFd::open([fd] { return ::dup(fd); })));
}

}  // namespace deltawire
