"""A reader's connection to a server: the requests that it makes."""

from deltawire import _core
from deltawire.errors import DeltawireError, corrupt, make_error
from deltawire.weights.live import messages
from deltawire.weights.live.connection import PATIENCE, Connection, Secrets
from deltawire.weights.live.messages import Place, Placed, Read, Wait

CALL_SECONDS = 5.0  # for reaching a server, and both proofs


class Peer:
    """A server that has proved itself. For one thread; only `close` may be called from others.

    Args:
        address: "host:port".
        secrets: those of all ends.

    Attributes:
        closed: whether the connection has ended.

    Raises:
        DeltawireError: code "PeerLost" if nobody answers there, "Timeout", "Unauthorized", or
            "Mismatch" (another encryption).
    """

    def __init__(self, address: str, secrets: Secrets) -> None:
        where = _core.parse_endpoint(address, "address")
        line = _core.call_at_door(where, *secrets, int(1e3 * CALL_SECONDS))
        self._connection = Connection(line, address)
        self.address, self.closed = address, False
        self._connection.send(messages.hello())

    @property
    def received(self) -> int:
        """Bytes from this server so far."""
        return self._connection.received

    def place(self, place: Place) -> Placed:
        """Says where the reader is; returns whom to read from."""
        kind, body = self._ask(place, messages.MAX_REQUEST)
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
        request = Wait(run, version, milliseconds)
        kind, body = self._ask(request, messages.MAX_MANIFEST, milliseconds / 1000)
        if kind not in (messages.MANIFEST, messages.NOTHING):
            raise self._nonsense(kind)
        return body if kind == messages.MANIFEST else None

    def read(self, name: str, offset: int, count: int) -> bytes:
        """Bytes of a file, fewer than asked for at its end, and if `count` is above MAX_RANGE.

        Raises:
            FileNotFoundError: there is none of this name.
        """
        count = min(count, messages.MAX_RANGE)
        kind, body = self._ask(Read(name, offset, count), max(count, messages.MAX_REQUEST))
        if kind == messages.MISSING:
            raise FileNotFoundError(name)
        if kind != messages.DATA or len(body) > count:
            raise self._nonsense(kind)
        return body

    def close(self) -> None:
        """Ends the connection: a request in another thread fails at once."""
        self.closed = True
        self._connection.close()

    def _ask(
        self, request: Wait | Read | Place, body_max: int, wait: float = 0.0
    ) -> tuple[int, bytes]:
        """Kind and body of the reply. After an error the connection is of no use."""
        try:
            self._connection.send(messages.request(request))
            reply = self._connection.receive(1 + body_max, PATIENCE + wait)
            kind, body = messages.parse(reply)
            if kind == messages.REFUSED:
                reason = messages.reason_of(body)
                raise make_error("Limit", f"{self.address} refused: {reason}")
            return kind, body
        except BaseException:
            self.close()
            raise

    def _nonsense(self, kind: int) -> DeltawireError:
        self.close()
        return corrupt(f"{self.address} sent a reply of kind {kind} that is none")
