"""Requests, replies and first messages from hostile ends: an error and the end of a connection."""

import contextlib
import random
import socket
import threading

import pytest
from deltawire import DeltawireError, _core
from deltawire.weights.live import messages, peer
from deltawire.weights.live.board import Board
from deltawire.weights.live.connection import Connection
from deltawire.weights.live.messages import Place, Placed, Read, Wait
from deltawire.weights.store.manifest import Manifest, StoredFile, Version
from deltawire.weights.store.memory import Memory
from refusals import raised

from tests.live.live_pairs import (
    SECRETS,
    publish,
    publisher_of,
    reader_by_hand,
    same,
    subscriber_of,
    weights,
)

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
        kind, body = messages.parse(sent)
        assert len(body) <= messages.MAX_REQUEST
        assert messages.parse_request(kind, body) == request
    assert messages.parse_placed(REPLIES[0][1:]) == Placed(RUN, 7, "10.0.0.1:29700")
    messages.check_hello(messages.hello())


def test_any_bytes_are_a_message_or_an_error() -> None:
    draw = random.Random(1)
    parsed = 0
    for number in range(20_000):
        body = mutated(messages.request(REQUESTS[number % len(REQUESTS)])[1:], draw)
        for parse in (
            lambda body=body: messages.parse_request(draw.randrange(5), body),
            lambda body=body: messages.parse_placed(body),
            lambda body=body: messages.parse(body),
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
    assert raised(DeltawireError, messages.parse_request, *messages.parse(request_)).code == code


def test_a_server_survives_hostile_readers(monkeypatch) -> None:
    """Each has proved itself, sends requests that are none, and loses its connection alone."""
    monkeypatch.setattr(messages, "MAX_WAIT_MS", 200)
    draw = random.Random(2)
    model, served = weights(), weights(2)
    with publisher_of(model, max_readers=1000) as publisher:
        publish(publisher)
        refusals = 0
        for number in range(400):
            hostile = reader_by_hand(publisher.address)
            with contextlib.suppress(DeltawireError):
                for _ in range(5):
                    hostile.send(mutated(messages.request(REQUESTS[1 + number % 4]), draw))
                hostile.send(messages.frame(9))  # the last that it hears
                while messages.parse(hostile.receive(1 << 20))[0] != messages.REFUSED:
                    pass
                refusals += 1
            hostile.close()
        hostile = reader_by_hand(publisher.address)
        with pytest.raises(DeltawireError) as error:
            hostile.send(messages.frame(messages.READ, bytes(1 << 20)))
            while True:
                hostile.receive(1000, 20)
        assert error.value.code == "PeerLost"
        with subscriber_of(served, publisher) as subscriber:
            subscriber.wait(timeout=20)
            assert subscriber.update() == 0 and same(served, model)
    assert refusals > 100


class HostileServer:
    """Knows the token, and answers every request with the same bytes."""

    def __init__(self) -> None:
        self._door = _core.open_door(_core.Listener("127.0.0.1", 0), *SECRETS)
        self.address = "{}:{}".format(*self._door.endpoint)
        self.reply = b""
        self._closed = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._closed:
            line = self._door.answer(100)
            if line is None:
                continue
            reader = Connection(line, "the reader")
            with contextlib.suppress(DeltawireError):
                messages.check_hello(reader.receive(100, 20))
                reader.receive(1000, 20)
                reader.send(self.reply)

    def close(self) -> None:
        self._closed = True
        self._thread.join()


def test_a_reply_longer_than_any() -> None:
    """Is refused before it is received."""
    hostile = HostileServer()
    try:
        for kind in (messages.DATA, messages.MANIFEST, messages.NOTHING, 99):
            hostile.reply = messages.frame(kind, bytes(2000))
            reader = peer.Peer(hostile.address, SECRETS)
            with pytest.raises(DeltawireError, match="2001 bytes is too long") as error:
                reader.read("a", 0, 1000)
            assert error.value.code == "Limit" and reader.closed and not reader.received
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
            reader = peer.Peer(hostile.address, SECRETS)
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


def test_other_versions_are_refused_by_name() -> None:
    with publisher_of(weights()) as publisher:
        other = messages.frame(messages.HELLO, messages._HELLO.pack(b"DWlive", 3))
        for hello, reason in (
            (other + b"whatever is new", b"speaks version 2 of live weights, the reader version 3"),
            (b'{"say": "probe"}', b"and you no reader of them"),
        ):
            kind, body = messages.parse(reader_by_hand(publisher.address, hello).receive(1000, 20))
            assert kind == messages.REFUSED and reason in body


class OldServer:
    """Speaks version 1: what it hears first must begin with its magic number."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                opened, _ = self._listener.accept()
                with opened:
                    assert not opened.recv(40).startswith(b"DWlive1\n")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def test_version_1_at_either_end(monkeypatch) -> None:
    """A server of it is named; a reader of it is hung up on at once."""
    monkeypatch.setattr(peer, "CALL_SECONDS", 2.0)
    with contextlib.closing(OldServer()) as old:
        with pytest.raises(DeltawireError, match="another version of deltawire") as error:
            peer.Peer(old.address, SECRETS)
        assert error.value.code in ("Unauthorized", "Timeout")
    with publisher_of(weights()) as publisher:
        host, port = publisher.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), 20) as reader:
            reader.sendall(b"DWlive1\n" + bytes(32))
            assert reader.recv(100) == b""


def test_what_has_no_deadline_left() -> None:
    """Neither end waits any longer; whoever hangs up is noticed at once."""
    door = _core.open_door(_core.Listener("127.0.0.1", 0), *SECRETS)
    call = threading.Thread(
        target=lambda: lines.append(_core.call_at_door(door.endpoint, *SECRETS, 20_000))
    )
    lines: list[_core.Line] = []
    call.start()
    waiting = Connection(door.answer(20_000), "the other end")
    call.join()
    error = raised(DeltawireError, waiting.receive, 1, 0.01, match="the other end is too slow")
    assert error.code == "Timeout"
    lines[0].hang_up()
    assert raised(DeltawireError, waiting.receive, 1, 20).code == "PeerLost"


def test_a_board_tells_runs_apart() -> None:
    """Versions of another run are not newer, whatever their numbers."""
    board, run, other = Board(), bytes(16), b"another run here"
    assert board.wait(run, messages.NO_VERSION, 0) is None
    file = StoredFile("a", 1, "0" * 64, None)
    board.announce(run, Memory("here"), Manifest(versions=(Version(5, "0" * 16, (file,)),)))
    assert board.wait(run, 5, 0) is None and board.wait(other, messages.NO_VERSION, 0) is None
    assert board.wait(run, 4, 0).startswith(b"{") and board.newest() == (run, 5)
    assert board.data("a") is None and board.data("b") is None
