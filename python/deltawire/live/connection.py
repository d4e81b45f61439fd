"""A TCP connection whose every call has a deadline."""

import contextlib
import socket
import ssl
import time

from deltawire.errors import DeltawireError, make_error

# A message has this long, and longer in proportion to its bytes: a peer that is slower than this
# is taken for lost, as it would hold a thread for hours.
PATIENCE = 10.0  # seconds
SLOWEST = 64 << 10  # bytes a second
_AT_ONCE = 1 << 20  # bytes of one system call; no more memory is taken ahead of what has come


class Connection:
    """One connection, for one thread; only `wake` may be called from others.

    Attributes:
        place: the other end, for messages.
        sent, received: bytes so far, without those of TCP and TLS.
    """

    def __init__(self, opened: socket.socket, place: str) -> None:
        self._socket = opened
        self.place = place
        self.sent = self.received = 0
        with contextlib.suppress(OSError):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def peer_host(self) -> str:
        """The other end's address, as text."""
        try:
            return str(self._socket.getpeername()[0])
        except OSError:
            return ""

    def do_tls_handshake(self, seconds: float) -> None:
        """The first step where the socket is one of TLS."""
        if isinstance(self._socket, ssl.SSLSocket):
            self._wait_until(time.monotonic() + seconds)
            try:
                self._socket.do_handshake()
            except OSError as error:
                raise make_error(
                    "Unauthorized", f"{self.place}: TLS failed: {_text_of(error)}"
                ) from error

    def receive(self, count: int, deadline: float) -> bytes:
        """Exactly `count` bytes, by a time of `time.monotonic`.

        Raises:
            DeltawireError: code "Timeout" or "PeerLost".
        """
        parts = []
        missing = count
        while missing:
            self._wait_until(deadline)
            try:
                part = self._socket.recv(min(missing, _AT_ONCE))
            except OSError as error:
                raise self._failure(error, "sent nothing more") from error
            if not part:
                raise make_error("PeerLost", f"{self.place} ended the connection")
            parts.append(part)
            missing -= len(part)
            self.received += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def send(self, *parts) -> None:
        """Sends buffers, in the time that their bytes are given.

        Raises:
            DeltawireError: code "Timeout" if the other end takes them too slowly; "PeerLost".
        """
        deadline = deadline_for(sum(map(len, parts)))
        for part in parts:
            view = memoryview(part)
            while view:
                self._wait_until(deadline)
                try:
                    count = self._socket.send(view[:_AT_ONCE])
                except OSError as error:
                    raise self._failure(error, "takes nothing more") from error
                self.sent += count
                view = view[count:]

    def wake(self) -> None:
        """Makes the thread that uses this connection fail at once."""
        with contextlib.suppress(OSError):
            # Not SSLSocket's method, which changes what the other thread is using.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Frees the socket."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def _wait_until(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise make_error("Timeout", f"{self.place} is too slow")
        try:
            self._socket.settimeout(left)
        except OSError as error:
            raise self._failure(error, "is gone") from error

    def _failure(self, error: OSError, what: str) -> DeltawireError:
        if isinstance(error, TimeoutError):
            return make_error("Timeout", f"{self.place} {what} for too long")
        return make_error("PeerLost", f"{self.place}: the connection broke: {_text_of(error)}")


def deadline_for(count: int, seconds: float = PATIENCE) -> float:
    """When a message of so many bytes must have passed."""
    return time.monotonic() + seconds + count / SLOWEST


def _text_of(error: OSError) -> str:
    return error.strerror or str(error)
