"""How a session's ranks reach each other: token, encryption, and where they listen."""

import contextlib
import dataclasses
import os
import socket
import time
from pathlib import Path

from deltawire import _core, arguments
from deltawire.errors import DeltawireError, invalid
from deltawire.session.elastic import log

Address = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class Network:
    """The settings of all connections of a session. It holds no reference to the session.

    Attributes:
        token: 32 bytes.
        encryption: "auto", "required" or "off".
        interface: to listen on, or None.
        ports: the first and the last of a range; (0, 0) is any free one.
        link: the rate of this rank, or None.
        arrival_ms: for a rank that is alive and begins a step later.
    """

    token: bytes
    encryption: str
    interface: str | None
    ports: tuple[int, int]
    link: _core.LinkShape | None
    arrival_ms: int

    def listen(self, meeting_place: Address, rank: int, seconds: float) -> _core.Listener:
        """A listener for a rank that meets the others at this place, whose name is looked up again
        for so long."""
        timeout_ms = arguments.timeout_in_ms(seconds, "connect_timeout")
        interface = self.interface or ""
        return _core.listen_for(meeting_place, rank, interface, *self.ports, timeout_ms)

    def listen_and_mesh(
        self, meeting_place: Address, place: tuple[int, int], seconds: float
    ) -> tuple[_core.Listener, _core.Mesh]:
        """The listener and the mesh of a rank, both within that time."""
        begun = time.monotonic()
        listener = self.listen(meeting_place, place[0], seconds)
        # Whole seconds, of a name that was looked up: errors otherwise have the caller's number.
        took = int(time.monotonic() - begun)
        left = max(0.001, seconds - took) if took else seconds
        return listener, self.mesh(meeting_place, place, left)

    def elastic_session(
        self,
        spec: str,
        options: _core.ReducerOptions,
        place: tuple[int, int] | None,
        doors: "Doors",
        times_ms: tuple[int, int, int],
        at_least: int | None,
        gives_state: bool,
        settings: str,
    ) -> _core.ElasticSession:
        """A session that goes on when ranks die; place: None to join. times_ms: of a step, to
        connect, for an arrival."""
        first = [doors.first] if place else doors.resolved()
        secrets = self.token, self.encryption
        listening = self.interface or "", self.ports, self.link
        given = at_least, gives_state, settings, log
        return _core.ElasticSession(
            spec, options, place, first, doors.resolved, *secrets, *listening, times_ms, *given
        )

    def mesh(self, meeting_place: Address, place: tuple[int, int], seconds: float) -> _core.Mesh:
        """The mesh of the ranks that meet there; place: rank and world size."""
        mesh = _core.Mesh.at(meeting_place, *place, self.token)
        mesh.set_encryption(self.encryption)
        mesh.shape = self.link
        mesh.arrival_timeout_ms = self.arrival_ms
        mesh.connect_timeout_ms = arguments.timeout_in_ms(seconds, "connect_timeout")
        return mesh


def secret_of(token: str | bytes | None, alone: bool, whose: str = "on every rank") -> bytes:
    """The job's token, 32 bytes, of what the caller gave or DELTAWIRE_TOKEN has. A single rank
    (`alone`) needs none. Raises InvalidArgumentError."""
    secret = arguments.secret(token)
    if secret is None and not alone:
        raise invalid(
            f"no token: set DELTAWIRE_TOKEN to the same value {whose}, or pass token=; make one "
            "with `openssl rand -hex 32`"
        )
    return _core.token_of(secret or bytes(32))


class Doors:
    """Where the ranks of a session meet, or where members of one that runs may be found.

    Args:
        text: "10.0.0.1:29600"; several with commas between; "@" and the path of a file that has one
            in each line ("#" begins a comment). None: what the environment's DELTAWIRE_ADDRESS has.
        alone: a single rank, which needs none.

    Attributes:
        first: the first address, as it is written.

    Raises:
        InvalidArgumentError: no address, one that can't be read, or no such file.
    """

    def __init__(self, text: str | None, alone: bool = False) -> None:
        self.text = os.environ.get("DELTAWIRE_ADDRESS", "") if text is None else str(text)
        self._named = [("127.0.0.1", 0)] if text is None and alone else self._read()
        self.first = self._named[0]

    def only(self) -> Address:
        """The one address of a session with a fixed number of ranks."""
        if len(self._named) > 1:
            raise invalid(
                f"{len(self._named)} addresses, which are for elastic=True: give rank 0's alone"
            )
        return self.first

    def resolved(self) -> list[Address]:
        """All addresses as they are now: the file is read again, and a name stands for all that it
        resolves to. One that doesn't resolve yet is left as it is."""
        if self.text.startswith("@"):
            with contextlib.suppress(DeltawireError):  # being replaced: what it had before
                self._named = self._read()
        return list(dict.fromkeys(each for named in self._named for each in _hosts_of(named)))

    def _read(self) -> list[Address]:
        texts = self.text.split(",")
        if self.text.startswith("@"):
            try:
                lines = Path(self.text[1:]).read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as cause:
                raise invalid(f"addresses can't be read: {cause}") from cause
            texts = [line.partition("#")[0] for line in lines]
        texts = [each.strip() for each in texts if each.strip()]
        if not texts:
            raise invalid(
                f"no address{f' in {self.text[1:]}' if self.text else ''}: pass rank 0's, "
                'address="10.0.0.1:29600", or set DELTAWIRE_ADDRESS'
            )
        return [_core.parse_endpoint(each, "address") for each in texts]


def _hosts_of(address: Address) -> list[Address]:
    host, port = address
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return [address]
    # An IPv6 address within one link has its interface as a number, which the text has as a name.
    return [address if each[4][3:] and each[4][3] else (str(each[4][0]), port) for each in found]
