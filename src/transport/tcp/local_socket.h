// Connections between ranks on one machine. They take three fifths of the processor time of TCP over loopback
// for a small message, four fifths for a large one (docs/design/patterns.md, "How bytes move").
//
// A rank that listens on an address and port also listens on a Unix socket whose name is made of both, in
// Linux's abstract namespace: no file, known to this network namespace alone, where that address is this
// machine's. Who dials the address tries that name first. The same handshake follows, and TLS where it is
// wanted; so neither end trusts the other for being here. In the clear the messages then go through memory
// that both share (links/shared_link.h).
#pragma once

#include "deltawire/result.h"
#include "transport/process/fork_guard.h"
#include "transport/tcp/address.h"

namespace deltawire {

// Listens on the name of `address`, which has a port. Empty if it can't: on all addresses ("0.0.0.0"), whose
// name nobody dials; where another program holds the name, or Unix sockets are forbidden; or where
// DELTAWIRE_LOCAL_SOCKETS=off. kInvalidArgument: another value of that variable than "on" or "off".
Result<GuardedFd> listen_locally(const SocketAddress& address, int backlog);

// A connection with the process that listens on that name; empty if there is none, or if it belongs to
// another user, who may have taken the name before the rank came.
GuardedFd dial_locally(const SocketAddress& address);

}  // namespace deltawire
