"""How ranks without a process group find each other: rank 0 listens at an address that all know.

A rank that knows the job's token proves it about a number that rank 0 has just drawn, and sends
its offer; when all are there rank 0 sends everybody all offers, with a proof of its own. Who can't
prove it is not heard: it takes no place, and keeps nobody waiting.
"""

import contextlib
import dataclasses
import errno
import hmac
import secrets
import selectors
import socket
import struct
import time

from deltawire import _core
from deltawire.errors import make_error
from deltawire.offers import SLOT_BYTES, Offer, offer_in, slot_of

_MAGIC = b"DWMEET0\n"
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_MEMBER_HEAD = struct.Struct("<8sII32s")  # magic, rank, world size, nonce
_COUNT = struct.Struct("<I")  # of the offers in an answer: all, or rank 0's alone, which says why
_MEMBER_BYTES = _MEMBER_HEAD.size + SLOT_BYTES + _PROOF_BYTES
_STRANGERS = 64  # connections beside the ranks' own that are listened to at once
_RETRY_SECONDS = 0.05


def address_of(text: str) -> tuple[str, int]:
    """Host and port of "10.0.0.1:29600", "host:29600" or "[::1]:29600"."""
    host, _, port = str(text).rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65_535:
        raise make_error(
            "InvalidArgument",
            f'address={text!r} must be rank 0\'s host and a free port of it, "10.0.0.1:29600"',
        )
    return host, int(port)


def meet(
    offer: Offer,
    place: tuple[int, int],
    address: tuple[str, int],
    secret: bytes,
    timeout: float,
) -> list[Offer]:
    """Every rank's offer, in rank order.

    Args:
        offer: this rank's.
        place: (rank, world size).
        address: where rank 0 listens.
        secret: the job's token.
        timeout: seconds that all of them have to come.

    Raises:
        DeltawireError: "Timeout" (names who is missing), "Unauthorized" (another token),
            "AddressInUse", "Mismatch" (another world size, a rank twice), "PeerLost", "System".
    """
    deadline = time.monotonic() + timeout
    if place[1] == 1:
        return [offer]
    try:
        if place[0] == 0:
            return _Host(offer, place[1], secret).gather(address, deadline)
        return _join(offer, place, address, (secret, deadline))
    except socket.gaierror as cause:
        raise make_error("InvalidArgument", f"no such host: {address[0]} ({cause})") from None


def _proof(secret: bytes, who: bytes, about: bytes) -> bytes:
    return hmac.digest(secret, b"deltawire " + who + b" " + about, "sha256")


@dataclasses.dataclass
class _Stranger:
    """Who has connected and not yet proved anything."""

    line: socket.socket
    nonce: bytes
    came: bytearray


@dataclasses.dataclass
class _Member:
    """Who has proved that it knows the secret."""

    line: socket.socket
    nonce: bytes
    slot: bytes


class _Host:
    """Rank 0's side."""

    def __init__(self, offer: Offer, world_size: int, secret: bytes) -> None:
        self._offer = offer
        self._world_size = world_size
        self._secret = secret
        self._members: dict[int, _Member] = {}
        self._misfits: list[_Member] = []  # that know the secret and belong elsewhere: told so
        self._selector = selectors.DefaultSelector()
        self._strangers = 0

    def gather(self, address: tuple[str, int], deadline: float) -> list[Offer]:
        with contextlib.ExitStack() as stack:
            stack.callback(self._close)
            listener = stack.enter_context(_listen(address))
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
            try:
                while len(self._members) < self._world_size - 1:
                    self._serve(listener, deadline)
            except Exception as cause:
                self._offer.problem = str(cause)
                self._answer([slot_of(self._offer)], deadline)  # the others hear of it
                raise
            slots = [slot_of(self._offer)]
            slots += [self._members[rank].slot for rank in range(1, self._world_size)]
            self._answer(slots, deadline)
            return [offer_in(slot, rank) for rank, slot in enumerate(slots)]

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                key.data.line.close()
        for member in (*self._members.values(), *self._misfits):
            member.line.close()
        self._selector.close()

    def _serve(self, listener: socket.socket, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            missing = [r for r in range(1, self._world_size) if r not in self._members]
            words = ", ".join(map(str, missing[:8])) + (" ..." if len(missing) > 8 else "")
            raise make_error(
                "Timeout",
                f"rank 0 waited in vain for rank{'s' * (len(missing) > 1)} {words} of "
                f"{self._world_size}; were they started, with this address and token?",
                missing[0],
            )
        for key, _ in self._selector.select(left):
            if key.fileobj is listener:
                self._accept(listener)
            else:
                self._listen_to(key.data)

    def _accept(self, listener: socket.socket) -> None:
        try:
            line, _ = listener.accept()
        except OSError:
            return
        if self._strangers >= self._world_size + _STRANGERS:
            line.close()
            return
        stranger = _Stranger(line, secrets.token_bytes(_NONCE_BYTES), bytearray())
        line.setblocking(False)
        try:
            line.send(_MAGIC + stranger.nonce)  # fits into any socket's buffer
        except OSError:
            line.close()
            return
        self._strangers += 1
        self._selector.register(line, selectors.EVENT_READ, stranger)

    def _listen_to(self, stranger: _Stranger) -> None:
        try:
            came = stranger.line.recv(_MEMBER_BYTES - len(stranger.came))
        except BlockingIOError:
            return
        except OSError:
            came = b""
        stranger.came += came
        if came and len(stranger.came) < _MEMBER_BYTES:
            return
        self._selector.unregister(stranger.line)
        self._strangers -= 1
        if not self._take(stranger):
            stranger.line.close()

    def _take(self, stranger: _Stranger) -> bool:
        """Whether it is a rank of this job."""
        body, proof = bytes(stranger.came[:-_PROOF_BYTES]), bytes(stranger.came[-_PROOF_BYTES:])
        due = _proof(self._secret, b"member", stranger.nonce + body)
        if len(stranger.came) != _MEMBER_BYTES or not hmac.compare_digest(proof, due):
            return False
        magic, rank, world_size, nonce = _MEMBER_HEAD.unpack_from(body)
        if magic != _MAGIC:
            return False
        member = _Member(stranger.line, nonce, body[_MEMBER_HEAD.size :])
        if world_size != self._world_size or not 0 < rank < world_size or rank in self._members:
            twice = rank in self._members and world_size == self._world_size
            self._misfits.append(member)
            who = "a second rank" if twice else "a rank"
            raise make_error(
                "Mismatch",
                f"{who} {rank} of {world_size} came to rank 0's job of {self._world_size}; give "
                "each process a rank of its own and all one world_size",
                rank,
            )
        self._members[rank] = member
        return True

    def _answer(self, slots: list[bytes], deadline: float) -> None:
        answer = _COUNT.pack(len(slots)) + b"".join(slots)
        for member in (*self._members.values(), *self._misfits):
            # Who can't be told will find out; the mesh names it to all.
            with contextlib.suppress(OSError):
                member.line.settimeout(max(2.0, deadline - time.monotonic()))
                member.line.sendall(answer + _proof(self._secret, b"host", member.nonce + answer))


def _listen(address: tuple[str, int]) -> socket.socket:
    family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
    try:
        return socket.create_server(address, family=family, backlog=512)
    except OSError as cause:
        code = "AddressInUse" if cause.errno == errno.EADDRINUSE else "System"
        raise make_error(
            code,
            f"rank 0 can't listen at {address[0]}:{address[1]}: {cause.strerror}; address= must be "
            "one of this machine's, with a free port",
        ) from None


def _join(
    offer: Offer, place: tuple[int, int], address: tuple[str, int], terms: tuple[bytes, float]
) -> list[Offer]:
    """Another rank's side; terms: secret and deadline."""
    secret, deadline = terms
    with _connect(address, deadline) as line:
        try:
            start = _received(line, len(_MAGIC) + _NONCE_BYTES, deadline)
            nonce = secrets.token_bytes(_NONCE_BYTES)
            body = _MEMBER_HEAD.pack(_MAGIC, *place, nonce) + slot_of(offer)
            line.sendall(body + _proof(secret, b"member", start[len(_MAGIC) :] + body))
            answer = _received(line, _COUNT.size, deadline)
            (count,) = _COUNT.unpack(answer)
            if count not in (1, place[1]):
                raise EOFError
            answer += _received(line, count * SLOT_BYTES + _PROOF_BYTES, deadline)
        except TimeoutError:
            raise make_error(
                "Timeout",
                f"rank 0 at {address[0]}:{address[1]} did not answer; are all {place[1]} ranks "
                "started?",
                0,
            ) from None
        except (ConnectionError, EOFError):
            raise make_error(
                "Unauthorized",
                f"rank 0 at {address[0]}:{address[1]} closed the connection to rank {place[0]}; "
                "give all ranks the same token and world_size, and see what rank 0 says",
                0,
            ) from None
    said, proof = answer[:-_PROOF_BYTES], answer[-_PROOF_BYTES:]
    if not hmac.compare_digest(proof, _proof(secret, b"host", nonce + said)):
        raise make_error(
            "Unauthorized",
            f"who answers at {address[0]}:{address[1]} doesn't know the job's token; is it rank 0?",
            0,
        )
    cut = range(_COUNT.size, len(said), SLOT_BYTES)
    return [offer_in(said[at : at + SLOT_BYTES], rank) for rank, at in enumerate(cut)]


def _connect(address: tuple[str, int], deadline: float) -> socket.socket:
    """Rank 0 may come later than the others."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise make_error(
                "Timeout",
                f"rank 0 does not listen at {address[0]}:{address[1]}; was it started, and may "
                "this machine reach that port?",
                0,
            )
        try:
            return socket.create_connection(address, timeout=left)
        except socket.gaierror:
            raise
        except OSError:
            time.sleep(min(_RETRY_SECONDS, left))


def _received(line: socket.socket, count: int, deadline: float) -> bytes:
    """So many bytes; EOFError where fewer come, TimeoutError where they come too late."""
    came = bytearray()
    while len(came) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        line.settimeout(left)
        piece = line.recv(min(count - len(came), 1 << 20))
        if not piece:
            raise EOFError
        came += piece
    return bytes(came)


def local_address(address: tuple[str, int]) -> str:
    """The address of this machine from which packets to rank 0 leave."""
    return _core.local_address_towards(address[0])
