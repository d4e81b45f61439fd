"""A reader's connection to a server: the requests that it makes."""

import socket
import ssl
import time

from deltawire import _core
from deltawire.errors import DeltawireError, make_error
from deltawire.live import handshake, messages
from deltawire.live.connection import PATIENCE, Connection, deadline_for
from deltawire.live.messages import Place, Placed, Read, Wait


class Peer:
    """A server that has proved itself. For one thread; only `wake` may be called from others.

    Args:
        address: "host:port".
        secret: the token.
        tls: for the connection; None for one without TLS.

    Attributes:
        closed: whether the connection has ended.

    Raises:
        DeltawireError: code "PeerLost" if nobody answers there, "Timeout", or "Unauthorized".
    """

    def __init__(self, address: str, secret: bytes, tls: ssl.SSLContext | None) -> None:
        host, port = _core.parse_endpoint(address, "address")
        try:
            opened = socket.create_connection((host, port), handshake.SECONDS)
        except OSError as error:
            raise make_error(
                "PeerLost", f"{address} can't be reached: {error.strerror or error}"
            ) from error
        if tls is not None:
            opened = tls.wrap_socket(opened, server_hostname=host, do_handshake_on_connect=False)
        self._connection = Connection(opened, address)
        self.address, self.closed = address, False
        try:
            handshake.call(self._connection, secret)
        except BaseException:
            self._connection.close()
            raise

    @property
    def received(self) -> int:
        """Bytes from this server so far."""
        return self._connection.received

    def place(self, place: Place) -> Placed:
        """Says where the reader is; returns whom to read from."""
        kind, body = self._ask(place)
        if kind != messages.PLACED:
            raise self._nonsense(kind)
        try:
            return messages.parse_placed(body)
        except DeltawireError:
            self.close()
            raise

    def wait(self, run: bytes, version: int, seconds: float) -> bytes | None:
        """The manifest when it has a version above this one; None if it does not in time."""
        milliseconds = min(messages.MAX_WAIT_MS, round(1000 * seconds))
        kind, body = self._ask(Wait(run, version, milliseconds), milliseconds / 1000)
        if kind not in (messages.MANIFEST, messages.NOTHING):
            raise self._nonsense(kind)
        return body if kind == messages.MANIFEST else None

    def read(self, name: str, offset: int, count: int) -> bytes:
        """Bytes of a file, fewer than asked for at its end, and if `count` is above MAX_RANGE.

        Raises:
            FileNotFoundError: there is none of this name.
        """
        count = min(count, messages.MAX_RANGE)
        kind, body = self._ask(Read(name, offset, count))
        if kind == messages.MISSING:
            raise FileNotFoundError(name)
        if kind != messages.DATA or len(body) > count:
            raise self._nonsense(kind)
        return body

    def wake(self) -> None:
        """Makes a request in another thread fail at once."""
        self._connection.wake()

    def close(self) -> None:
        """Ends the connection."""
        self.closed = True
        self._connection.close()

    def _ask(self, request: Wait | Read | Place, wait: float = 0.0) -> tuple[int, bytes]:
        """Kind and body of the reply. After an error the connection is of no use."""
        try:
            return self._exchange(request, wait)
        except BaseException:
            self.close()
            raise

    def _exchange(self, request: Wait | Read | Place, wait: float) -> tuple[int, bytes]:
        self._connection.send(messages.request(request))
        begun = time.monotonic() + PATIENCE + wait
        kind, length = messages.parse_header(self._connection.receive(messages.HEADER_BYTES, begun))
        if length > messages.max_reply(kind):
            raise self._nonsense(kind)
        body = self._connection.receive(length, deadline_for(length)) if length else b""
        if kind == messages.REFUSED:
            raise make_error("Limit", f"{self.address} refused: {messages.reason_of(body)}")
        return kind, body

    def _nonsense(self, kind: int) -> DeltawireError:
        self.close()
        return make_error("Corrupt", f"{self.address} sent a reply of kind {kind} that is none")
