"""Requests, replies and handshakes from hostile ends: an error and a closed connection, no more."""

import contextlib
import random
import socket
import threading
import time

import pytest
from deltawire import DeltawireError
from deltawire.live import connection, handshake, messages, peer
from deltawire.live.board import Board
from deltawire.live.connection import Connection
from deltawire.live.messages import Place, Placed, Read, Wait
from deltawire.weight_store.manifest import Manifest, StoredFile, Version
from deltawire.weight_store.memory import Memory

from tests.live.live_pairs import TOKEN, publish, publisher_of, same, subscriber_of, weights

RUN = bytes(range(16))
REQUESTS = [
    Wait(RUN, -1, 30_000),
    Wait(RUN, 2**62, 0),
    Read("000000000001-full-00ff00ff.safetensors", 5, 1 << 20),
    Place(-1, 0, "", False),
    Place(12, 65_535, "fe80::1", True),
]
REPLIES = [
    messages.placed(Placed(RUN, 7, "10.0.0.1:29700")),
    messages.frame(messages.MANIFEST, b"{}" * 50),
    messages.frame(messages.DATA, bytes(1000)),
    messages.frame(messages.NOTHING),
    messages.frame(messages.MISSING),
    messages.refused("no more readers"),
]
REFUSAL = messages.header(messages.REFUSED, 0)[:4]
CODES = {"Corrupt", "Limit", "PeerLost", "Timeout"}


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Flipped bits, cuts, additions, numbers at their ends, or bytes that are all random."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(changed) + 1)
        match draw.randrange(5):
            case 0 if at < len(changed):
                changed[at] ^= 1 << draw.randrange(8)
            case 1:
                del changed[at:]
            case 2:
                changed[at:at] = draw.randbytes(draw.randint(1, 40))
            case 3:
                changed[at : at + 4] = draw.choice([b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f"])
            case 4 if draw.random() < 0.2:
                changed[:] = draw.randbytes(draw.randint(0, 100))
    return bytes(changed)


def test_requests_come_back() -> None:
    for request in REQUESTS:
        sent = messages.request(request)
        kind, length = messages.parse_header(sent[: messages.HEADER_BYTES])
        assert length == len(sent) - messages.HEADER_BYTES <= messages.MAX_REQUEST
        assert messages.parse_request(kind, sent[messages.HEADER_BYTES :]) == request
    body = REPLIES[0][messages.HEADER_BYTES :]
    assert messages.parse_placed(body) == Placed(RUN, 7, "10.0.0.1:29700")


def test_any_bytes_are_a_message_or_an_error() -> None:
    draw = random.Random(1)
    parsed = 0
    for number in range(20_000):
        body = mutated(messages.request(REQUESTS[number % len(REQUESTS)])[8:], draw)
        for parse in (
            lambda body=body: messages.parse_request(draw.randrange(5), body),
            lambda body=body: messages.parse_placed(body),
            lambda body=body: messages.parse_header((body + bytes(8))[:8]),
        ):
            try:
                parse()
                parsed += 1
            except DeltawireError as error:
                assert error.code in ("Corrupt", "Limit")
        assert messages.reason_of(body).isprintable()
    assert 2000 < parsed < 50_000


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (messages.frame(messages.READ, bytes(8) + b"\1\0\0\0" + b"../manifest.json"), "Corrupt"),
        (messages.request(Read("a", 0, messages.MAX_RANGE + 1)), "Limit"),
        (messages.request(Read("a", 0, 0)), "Limit"),
        (messages.request(Wait(RUN, -2, 0)), "Corrupt"),
        (messages.request(Wait(RUN, 0, 30_001)), "Limit"),
        (messages.request(Place(0, 0, "a b", False)), "Corrupt"),
        (messages.frame(9), "Corrupt"),
    ],
)
def test_requests_that_are_none(request_: bytes, code: str) -> None:
    with pytest.raises(DeltawireError) as error:
        messages.parse_request(messages.parse_header(request_[:8])[0], request_[8:])
    assert error.value.code == code


def test_a_server_survives_hostile_readers(monkeypatch) -> None:
    """Each has proved itself, sends requests that are none, and loses its connection alone."""
    monkeypatch.setattr(messages, "MAX_WAIT_MS", 200)
    draw = random.Random(2)
    model, served = weights(), weights(2)
    with publisher_of(model, max_readers=1000) as publisher:
        publish(publisher)
        host, port = publisher.address.rsplit(":", 1)
        refusals = 0
        for number in range(400):
            opened = socket.create_connection((host, int(port)))
            hostile = Connection(opened, "the publisher")
            handshake.call(hostile, TOKEN)
            for _ in range(5):
                request = mutated(messages.request(REQUESTS[1 + number % 4]), draw)
                with contextlib.suppress(DeltawireError):
                    hostile.send(request)
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_WR)
                opened.settimeout(20)
                while piece := opened.recv(1 << 16):
                    refusals += REFUSAL in piece
            hostile.close()
        hostile = Connection(socket.create_connection((host, int(port))), "the publisher")
        handshake.call(hostile, TOKEN)
        hostile.send(messages.header(messages.READ, 2**32 - 1))
        kind, length = messages.parse_header(hostile.receive(8, time.monotonic() + 20))
        assert kind == messages.REFUSED
        assert b"a request of 4,294,967,295 bytes" in hostile.receive(length, time.monotonic() + 20)
        hostile.close()
        with subscriber_of(served, publisher) as subscriber:
            subscriber.wait(timeout=20)
            assert subscriber.update() == 0 and same(served, model)
    assert refusals > 100


class HostileServer:
    """Knows the token, and answers every request with the same bytes."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.reply = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                opened, _ = self._listener.accept()
            except OSError:
                return
            with opened:
                reader = Connection(opened, "the reader")
                try:
                    handshake.answer(reader, TOKEN)
                    reader.receive(messages.HEADER_BYTES, time.monotonic() + 20)
                    reader.send(self.reply)
                except DeltawireError:
                    continue

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def test_a_reply_longer_than_any() -> None:
    """Is refused at its header."""
    hostile = HostileServer()
    try:
        for kind in (messages.DATA, messages.MANIFEST, messages.NOTHING, 99):
            hostile.reply = messages.header(kind, 2**32 - 1)
            reader = peer.Peer(hostile.address, TOKEN, None)
            with pytest.raises(DeltawireError) as error:
                reader.read("a", 0, 1000)
            assert error.value.code == "Corrupt" and reader.closed
    finally:
        hostile.close()


def test_a_reader_survives_hostile_servers() -> None:
    """Whatever is answered is a reply or an error, and takes no memory that has not arrived."""
    draw = random.Random(3)
    hostile = HostileServer()
    refused = 0
    try:
        for number in range(600):
            hostile.reply = mutated(REPLIES[number % len(REPLIES)], draw)
            reader = peer.Peer(hostile.address, TOKEN, None)
            call, *given = (
                (reader.place, Place(0, 0, "", False)),
                (reader.wait, RUN, 0, 0),
                (reader.read, "a", 0, 1000),
            )[number % 3]
            try:
                call(*given)
            except FileNotFoundError:
                pass
            except DeltawireError as error:
                assert error.code in CODES
                assert reader.closed
                refused += 1
            reader.close()
    finally:
        hostile.close()
    assert refused > 300


def both_ends(reader_secret: bytes, change=lambda piece, to_server: piece):
    """A handshake through something that may change what is sent.

    Returns:
        whether the reader believed the server, whether the server believed the reader, and all
        bytes that were sent.
    """
    ends = [socket.socketpair() for _ in range(2)]
    reader = Connection(ends[0][0], "the server")
    server = Connection(ends[1][0], "the reader")
    seen: list[bytes] = []

    def pass_on(source: socket.socket, target: socket.socket, to_server: bool) -> None:
        while piece := source.recv(4096):
            seen.append(piece)
            target.sendall(change(piece, to_server))
        target.shutdown(socket.SHUT_WR)

    believed = []

    def answer() -> None:
        try:
            believed.append(handshake.answer(server, TOKEN))
        except DeltawireError:
            believed.append(False)
        server.wake()

    threads = [
        threading.Thread(target=pass_on, args=(ends[0][1], ends[1][1], True)),
        threading.Thread(target=pass_on, args=(ends[1][1], ends[0][1], False)),
        threading.Thread(target=answer),
    ]
    for thread in threads:
        thread.start()
    try:
        handshake.call(reader, reader_secret)
        believes = True
    except DeltawireError:
        believes = False
    reader.wake()
    for thread in threads:
        thread.join(20)
    for end in (*ends[0], *ends[1]):
        end.close()
    return believes, believed[0], b"".join(seen)


def test_handshakes() -> None:
    """The token never travels; another one is believed by nobody."""
    believes, believed, seen = both_ends(TOKEN)
    assert believes and believed
    assert TOKEN not in seen and len(seen) == 2 * (8 + 32) + 2 * 32
    believes, believed, seen = both_ends(b"x" * 32)
    assert not believes and not believed
    assert len(seen) == 2 * (8 + 32) + 32, "a server proves itself to those alone who have"


def test_every_flipped_byte_of_a_handshake_is_refused() -> None:
    for to_server, bytes_ in ((True, 72), (False, 72)):
        for at in range(0, bytes_, 5):
            passed = 0

            def flip(piece: bytes, towards: bool, at=at, to_server=to_server) -> bytes:
                nonlocal passed
                if towards != to_server:
                    return piece
                changed = bytearray(piece)
                if passed <= at < passed + len(piece):
                    changed[at - passed] ^= 4
                passed += len(piece)
                return bytes(changed)

            believes, believed, _ = both_ends(TOKEN, flip)
            assert not believes, f"byte {at}, {'to' if to_server else 'from'} the server"
            # The server's last message is its proof: it can't know what became of it.
            assert not believed or (not to_server and at >= 40)


def test_an_impostor_learns_no_proof_of_the_server() -> None:
    """Sending a reader's own messages back (reflection) is refused."""
    one, other = socket.socketpair()
    reader = Connection(one, "the mirror")

    def mirror() -> None:
        while piece := other.recv(4096):
            other.sendall(piece)

    thread = threading.Thread(target=mirror)
    thread.start()
    with pytest.raises(DeltawireError, match="does not know the token") as error:
        handshake.call(reader, TOKEN)
    assert error.value.code == "Unauthorized"
    reader.wake()
    thread.join(20)
    one.close()
    other.close()


def test_what_has_no_deadline_left() -> None:
    """Neither end waits any longer."""
    one, other = socket.socketpair()
    waiting = Connection(one, "the other end")
    with pytest.raises(DeltawireError) as error:
        waiting.receive(1, time.monotonic() + 0.01)
    assert error.value.code == "Timeout"
    other.close()
    with pytest.raises(DeltawireError) as error:
        waiting.receive(1, time.monotonic() + 20)
    assert error.value.code == "PeerLost"
    waiting.close()
    assert connection.deadline_for(1 << 20) - time.monotonic() > 20


def test_a_board_tells_runs_apart() -> None:
    """Versions of another run are not newer, whatever their numbers."""
    board, run, other = Board(), bytes(16), b"another run here"
    assert board.wait(run, messages.NO_VERSION, 0) is None
    file = StoredFile("a", 1, "0" * 64, None)
    board.announce(run, Memory("here"), Manifest(versions=(Version(5, "0" * 16, (file,)),)))
    assert board.wait(run, 5, 0) is None and board.wait(other, messages.NO_VERSION, 0) is None
    assert board.wait(run, 4, 0).startswith(b"{") and board.newest() == (run, 5)
    assert board.data("a") is None and board.data("b") is None
