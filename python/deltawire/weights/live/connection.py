"""A line to a door, with the patience that readers and servers of weights have."""

import time

from deltawire import _core, arguments
from deltawire.errors import make_error
from deltawire.session.network import secret_of

# A message has this long, and longer in proportion to its bytes: a peer that is slower than this
# is taken for lost, as it would hold a thread for hours.
PATIENCE = 10.0  # seconds
SLOWEST = 64 << 10  # bytes a second


Secrets = tuple[bytes, str]  # the job's token and the encryption, as doors take them


def secrets_of(token: str | bytes | None, encryption: arguments.Encryption | None) -> Secrets:
    """What both ends must have in common.

    Args:
        token: 16 bytes or more; None: DELTAWIRE_TOKEN.
        encryption: "required", "auto" or "off"; None: DELTAWIRE_ENCRYPTION, else "required".

    Raises:
        InvalidArgumentError: there is no token, or one of them is invalid.
    """
    known = secret_of(token, alone=False, whose="for publisher and subscribers")
    return known, arguments.encryption(encryption, has_secret=True, default="required")


class Connection:
    """One line, for one thread; only `close` may be called from others.

    Attributes:
        place: the other end, for messages.
        sent, received: bytes of messages so far, without those of lines, TLS and TCP.
    """

    def __init__(self, line: _core.Line, place: str) -> None:
        self._line = line
        self.place = place
        self.sent = self.received = 0

    @property
    def peer_host(self) -> str:
        """The other end's address, as text."""
        return self._line.peer[0]

    def receive(self, bytes_max: int, seconds: float = PATIENCE) -> bytes:
        """The next message: its first bytes within `seconds`, the others not slower than SLOWEST.

        Raises:
            DeltawireError: code "Timeout", "PeerLost", or "Limit" beyond `bytes_max`.
        """
        end, before = time.monotonic() + seconds, self.received
        while (left := end + (self.received - before) / SLOWEST - time.monotonic()) > 0:
            message = self._call(self._line.receive, bytes_max, left)
            self.received = self._line.bytes_received
            if message is not None:
                return message
        raise make_error("Timeout", f"{self.place} is too slow")

    def send(self, message: bytes) -> None:
        """Sends one, in the time that its bytes are given.

        Raises:
            DeltawireError: code "Timeout" if the other end takes them too slowly; "PeerLost".
        """
        self._call(self._line.send, message, PATIENCE + len(message) / SLOWEST)
        self.sent += len(message)

    def close(self) -> None:
        """Ends the connection: a thread that uses it fails at once. Its descriptor goes with the
        object."""
        self._line.hang_up()

    def _call(self, method, given, seconds: float):
        try:
            return method(given, max(1, int(1e3 * seconds)))
        except RuntimeError as error:
            code = getattr(error, "code", "System")
            raise make_error(code, f"{self.place}: {error}") from error
