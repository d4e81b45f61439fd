"""How a session's ranks reach each other: token, encryption, and where they listen."""

from deltawire import _core, arguments
from deltawire.errors import make_error

Address = tuple[str, int]


class Network:
    """What all connections of a session have. It holds no reference to the session.

    Args:
        token: 32 bytes.
        encryption: "auto", "required" or "off".
        interface: to listen on, or None.
        ports: the first and the last of a range; (0, 0) is any free one.
        link: the rate of this rank, or None.
        arrival_ms: for a rank that is alive and begins a step later.
    """

    def __init__(
        self,
        token: bytes,
        encryption: str,
        interface: str | None,
        ports: tuple[int, int],
        link: _core.LinkShape | None,
        arrival_ms: int,
    ) -> None:
        self.token, self.encryption = token, encryption
        self._interface, self._ports = interface or "", ports
        self._link, self._arrival_ms = link, arrival_ms

    def listen(self, meeting_place: Address, rank: int) -> _core.Listener:
        """The listener of a rank of those that meet there."""
        return _core.listen_for(meeting_place, rank, self._interface, *self._ports)

    def listen_on(self, host: str) -> _core.Listener:
        """Another one, on an address of this machine."""
        return _core.Listener(host, *self._ports)

    def mesh(self, meeting_place: Address, place: tuple[int, int], seconds: float) -> _core.Mesh:
        """Of the ranks that meet there; place: rank and world size."""
        mesh = _core.Mesh.at(meeting_place, *place, self.token)
        mesh.set_encryption(self.encryption)
        mesh.shape = self._link
        mesh.arrival_timeout_ms = self._arrival_ms
        mesh.connect_timeout_ms = arguments.timeout_in_ms(seconds, "connect_timeout")
        return mesh


def secret_of(token: str | bytes | None, alone: bool) -> bytes:
    """The job's token, 32 bytes, of what the caller gave or DELTAWIRE_TOKEN has. A single rank
    (`alone`) needs none. Raises InvalidArgumentError."""
    secret = arguments.secret(token)
    if secret is None and not alone:
        raise make_error(
            "InvalidArgument",
            "no token: set DELTAWIRE_TOKEN to the same value on every rank, or pass token=; make "
            "one with `openssl rand -hex 32`",
        )
    return _core.token_of(secret or bytes(32))


def addresses_of(text: str | None, alone: bool, several: bool) -> list[Address]:
    """(host, port) of "10.0.0.1:29600" or, if `several`, of a list with commas. Raises
    InvalidArgumentError."""
    if text is None and alone:
        return [("127.0.0.1", 0)]
    if text is None:
        raise make_error("InvalidArgument", 'no address: pass rank 0\'s, address="10.0.0.1:29600"')
    texts = str(text).split(",") if several else [str(text)]
    return [_core.parse_endpoint(each.strip(), "address") for each in texts]
