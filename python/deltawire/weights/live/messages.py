"""Requests and replies between a reader of weights and a server, as bytes.

docs/reference/live-weights.md describes them. Parsing is total: any bytes give a message, or a
DeltawireError that says what is wrong with them.
"""

import re
import struct
from typing import NamedTuple

from deltawire.errors import corrupt, make_error, mismatch

RUN_BYTES = 16
MAX_REQUEST = 512  # bytes behind the kind
MAX_MANIFEST = 64 << 20
MAX_RANGE = 4 << 20  # bytes of a file in one reply
MAX_WAIT_MS = 30_000
NO_VERSION = -1

VERSION = 2
_NAME = b"DWlive"

HELLO, WAIT, READ, PLACE = 0, 1, 2, 3
NOTHING, MANIFEST, DATA, MISSING, PLACED, REFUSED = 16, 17, 18, 19, 20, 21

_HELLO = struct.Struct(f"<{len(_NAME)}sH")
_WAIT = struct.Struct(f"<{RUN_BYTES}sqI")
_READ = struct.Struct("<QI")
_PLACE = struct.Struct("<qHB")
_PLACED = struct.Struct(f"<{RUN_BYTES}sq")
_FILE_NAME = re.compile(rb"[a-z0-9][a-z0-9.-]{0,199}")
_ADDRESS = re.compile(rb"[\x21-\x7e]{0,255}")
_MAX_TEXT = 400  # of a refusal


class Wait(NamedTuple):
    """Asks for the manifest when it has a version above `version`.

    Attributes:
        run: the publisher's, as `Placed` named it.
        version: the newest that the reader has, or NO_VERSION.
        milliseconds: after which the answer is NOTHING.
    """

    run: bytes
    version: int
    milliseconds: int


class Read(NamedTuple):
    """Asks for bytes of a file."""

    name: str
    offset: int
    count: int


class Place(NamedTuple):
    """Says where the reader is, and asks whom to read from.

    Attributes:
        version: the newest that it has, or NO_VERSION.
        port: where it serves others; 0 if it doesn't.
        host: the same; empty for the address that its connection comes from.
        lost: the last answer is no use, as that parent does not answer, or lags.
    """

    version: int
    port: int
    host: str
    lost: bool


class Placed(NamedTuple):
    """Answers Place.

    Attributes:
        run: drawn by the publisher when it starts: versions of another run are other weights.
        latest: the newest version here, or NO_VERSION.
        parent: whom to read from, "host:port"; empty for the server that answers.
    """

    run: bytes
    latest: int
    parent: str


def frame(kind: int, body: bytes = b"") -> bytes:
    """A message as it is sent."""
    return bytes((kind,)) + body


def parse(message: bytes) -> tuple[int, bytes]:
    """Kind and body. Raises DeltawireError, code "Corrupt", for a message of no bytes."""
    if not message:
        raise corrupt("a message of no bytes, which is none")
    return message[0], message[1:]


def hello() -> bytes:
    """A reader's first message as it is sent; it is not answered."""
    return frame(HELLO, _HELLO.pack(_NAME, VERSION))


def check_hello(message: bytes) -> None:
    """Raises DeltawireError, code "Mismatch", for anything but a reader of this version."""
    kind, body = parse(message)
    if kind != HELLO or not body.startswith(_NAME) or len(body) < _HELLO.size:
        raise mismatch("this is a server of live weights, and you no reader of them")
    version = _HELLO.unpack_from(body)[1]
    if version != VERSION:
        raise mismatch(
            f"the server speaks version {VERSION} of live weights, the reader version {version}; "
            "install the same version of deltawire at both ends"
        )


def request(message: Wait | Read | Place) -> bytes:
    """A request as it is sent."""
    if isinstance(message, Wait):
        return frame(WAIT, _WAIT.pack(*message))
    if isinstance(message, Read):
        return frame(READ, _READ.pack(message.offset, message.count) + message.name.encode())
    body = _PLACE.pack(message.version, message.port, message.lost)
    return frame(PLACE, body + message.host.encode())


def parse_request(kind: int, body: bytes) -> Wait | Read | Place:
    """The request of a body.

    Raises:
        DeltawireError: code "Corrupt", or "Limit" for numbers that are too large.
    """
    if kind == WAIT and len(body) == _WAIT.size:
        wait = Wait(*_WAIT.unpack(body))
        _check_version(wait.version)
        if wait.milliseconds > MAX_WAIT_MS:
            raise make_error("Limit", f"a request to wait for {wait.milliseconds:,} ms")
        return wait
    if kind == READ and len(body) > _READ.size:
        offset, count = _READ.unpack_from(body)
        name = body[_READ.size :]
        if not _FILE_NAME.fullmatch(name):
            raise corrupt("a request for a file whose name is none")
        if not 0 < count <= MAX_RANGE:
            raise make_error("Limit", f"a request for {count:,} bytes at once")
        return Read(name.decode("ascii"), offset, count)
    if kind == PLACE and len(body) >= _PLACE.size:
        version, port, lost = _PLACE.unpack_from(body)
        host = body[_PLACE.size :]
        _check_version(version)
        if lost > 1 or not _ADDRESS.fullmatch(host):
            raise corrupt("a request for a place that is none")
        return Place(version, port, host.decode("ascii"), bool(lost))
    raise corrupt(f"a request of kind {kind} with {len(body)} bytes, which is none")


def placed(message: Placed) -> bytes:
    """The reply as it is sent."""
    return frame(PLACED, _PLACED.pack(message.run, message.latest) + message.parent.encode("ascii"))


def parse_placed(body: bytes) -> Placed:
    """The reply of a body. Raises DeltawireError, code "Corrupt"."""
    if len(body) < _PLACED.size or not _ADDRESS.fullmatch(body[_PLACED.size :]):
        raise corrupt("a reply that is no place")
    run, latest = _PLACED.unpack_from(body)
    _check_version(latest)
    return Placed(run, latest, body[_PLACED.size :].decode("ascii"))


def refused(reason: str) -> bytes:
    """The last message to somebody who asked for what isn't given."""
    return frame(REFUSED, reason.encode("ascii", "replace")[:_MAX_TEXT])


def reason_of(body: bytes) -> str:
    """The text of a refusal, as one printable line."""
    return re.sub(r"[^\x20-\x7e]", "?", body[:_MAX_TEXT].decode("latin-1"))


def _check_version(version: int) -> None:
    if version < NO_VERSION:
        raise corrupt(f"a message with version {version}")
