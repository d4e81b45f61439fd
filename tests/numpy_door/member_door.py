"""Messages at the doors of an elastic session (docs/reference/elastic-messages.md), for tests."""

import struct

from deltawire import _core
from members import SECRET

_PROBE, _HERE, JOIN = 2, 3, 5
_SECONDS = 10.0


def token() -> bytes:
    return _core.token_of(SECRET.encode())


def members_at(address: str) -> list[tuple[int, str]]:
    """Id and address of each member of the view in which the process at this door is; empty if it
    is in none."""
    host, port = address.rsplit(":", 1)
    line = _core.call_at_door((host, int(port)), token(), "auto", round(1e3 * _SECONDS))
    line.send(bytes([1, _PROBE]), round(1e3 * _SECONDS))
    answer = line.receive(1 << 20, round(1e3 * _SECONDS))
    assert answer[:2] == bytes([1, _HERE]), answer
    if answer[2] == 0:
        return []
    at = 3 + 8 + 4 + 1 + 4 + 4  # job, id, meets, epoch, next id
    (count,) = struct.unpack_from("<I", answer, at)
    at, found = at + 4, []
    for _ in range(count):
        number, size = struct.unpack_from("<II", answer, at)
        (port,) = struct.unpack_from("<H", answer, at + 8 + size)
        found.append((number, f"{answer[at + 8 : at + 8 + size].decode()}:{port}"))
        at += 8 + size + 2
    return found


def refusal(why: str) -> bytes:
    """A message that refuses a process."""
    text = why.encode()
    return bytes([1, 1]) + struct.pack("<HI", 10, len(text)) + text  # 10: Mismatch
