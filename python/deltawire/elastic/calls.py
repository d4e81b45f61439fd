"""Messages between the doors of an elastic session: JSON, and bytes in pieces."""

import contextlib
import hashlib
import json
import time

from deltawire import _core, foreign_json
from deltawire.errors import DeltawireError, make_error

TEXT_BYTES_MAX = 1 << 20
PIECE_BYTES = 16 << 10  # takes less than SILENCE at 44 kbit/s
BYTES_MAX = 1 << 40  # of what is sent in pieces
SILENCE = 3.0  # seconds after which a process that answers nothing counts as gone
PROBE: dict = {"say": "probe"}
WAIT = {"say": "wait", "hosted": False}
_SLICE = 0.1  # seconds; between two looks at signals


class Caller:
    """How this process calls at doors.

    Args:
        token: the job's, 32 bytes.
        encryption: "auto", "required" or "off".
    """

    def __init__(self, token: bytes, encryption: str) -> None:
        self._secrets = token, encryption

    def call(self, address: tuple[str, int], seconds: float = SILENCE) -> _core.Line:
        """Raises DeltawireError: "PeerLost" (nobody listens), "Timeout", "Unauthorized"."""
        return _core.call_at_door(address, *self._secrets, max(1, int(1e3 * seconds)))

    def ask(self, address: tuple[str, int], question: dict, seconds: float = SILENCE) -> dict:
        """One question and its answer. Raises DeltawireError as `call`."""
        line = self.call(address, seconds)
        say(line, question)
        return hear_within(line, seconds)

    def keep_door(self, listener: _core.Listener) -> _core.Doorkeeper:
        """The door of this process; uses the listener up. A thread of the core answers probes, and
        keeps those waiting who want to meet or join, while a Python thread keeps the GIL."""
        waiting = [_text({"say": kind})[:-1] for kind in ("meet", "found", "join")]
        words = _text(PROBE), waiting, _text(WAIT), TEXT_BYTES_MAX
        return _core.keep_door(listener, *self._secrets, *words)


def _text(message: dict) -> str:
    return json.dumps(message)


def keep_saying(line: _core.KeptLine, message: dict | None) -> None:
    """The core says it twice a second from now on; None: nothing."""
    line.keep(None if message is None else _text(message))


def say(line: _core.Line, message: dict, seconds: float = SILENCE) -> None:
    """Raises DeltawireError: "PeerLost", "Timeout"; the line is of no use then."""
    line.send(_text(message).encode(), int(1e3 * seconds))


def said(line: _core.Line, message: dict) -> bool:
    """The same; False instead of an error."""
    with contextlib.suppress(DeltawireError):
        say(line, message)
        return True
    return False


def hear(line: _core.Line, seconds: float) -> dict | None:
    """The next message, or None if none comes within that time. Raises DeltawireError: "PeerLost",
    "Corrupt"."""
    got = line.receive(TEXT_BYTES_MAX, int(1e3 * seconds))
    return None if got is None else message_in(got)


def message_in(got: bytes) -> dict:
    """The message in these bytes. Raises DeltawireError (Corrupt)."""
    with contextlib.suppress(ValueError):
        message = foreign_json.parse(got)
        if isinstance(message, dict) and isinstance(message.get("say"), str):
            return message
    raise make_error("Corrupt", "another rank sent what is no message")


def hear_within(line: _core.Line, seconds: float) -> dict:
    """The same; raises "Timeout" instead of None."""
    end = time.monotonic() + seconds
    while (message := hear(line, _SLICE)) is None:
        if time.monotonic() >= end:
            raise make_error("Timeout", f"another rank said nothing for {seconds:g} s")
    return message


def send_bytes(line: _core.Line, data: bytes, seconds: float) -> None:
    """Sends bytes of any length, in pieces, with their digest. `seconds`: for each piece."""
    view = memoryview(data)
    say(line, {"say": "bytes", "count": len(view), "digest": hashlib.sha256(view).hexdigest()})
    for first in range(0, len(view), PIECE_BYTES):
        line.send(bytes(view[first : first + PIECE_BYTES]), int(1e3 * seconds))


def receive_bytes(line: _core.Line, seconds: float) -> bytes:
    """What `send_bytes` sent. Raises DeltawireError: "Corrupt" where the digest is another one,
    "Timeout" where a piece takes longer, "PeerLost"."""
    head = hear_within(line, seconds)
    while head["say"] in ("wait", "moves"):
        head = hear_within(line, seconds)
    count = head.get("count")
    if head["say"] != "bytes" or not isinstance(count, int) or not 0 <= count <= BYTES_MAX:
        raise make_error("Corrupt", "another rank sent no bytes where they were due")
    data = bytearray()
    digest = hashlib.sha256()
    while len(data) < count:
        piece = line.receive(min(PIECE_BYTES, count - len(data)), int(1e3 * seconds))
        if not piece:
            raise make_error("Timeout", f"another rank sent nothing for {seconds:g} s")
        digest.update(piece)
        data += piece
    if digest.hexdigest() != head.get("digest"):
        raise make_error("Corrupt", "the bytes of another rank don't have the digest that it gave")
    return bytes(data)
