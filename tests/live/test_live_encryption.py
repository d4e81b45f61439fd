"""Somebody between a publisher and its subscribers, who has no token: reads nothing, and replaces
nothing."""

import contextlib
import os
import socket
import struct
import threading
from pathlib import Path

import pytest
from deltawire import DeltawireError, InvalidArgumentError, live, weight_store
from deltawire.weights.live import messages, peer

from tests.live.changing_relay import Relay
from tests.live.live_pairs import (
    ANYWHERE,
    TOKEN,
    publish,
    publisher_of,
    same,
    subscriber_of,
    train,
    wait_until,
    weights,
)

PROVED = 32 + 60 + 32  # bytes of a server in the handshake: nonce, claims, proof


def test_nothing_is_readable() -> None:
    """In a tree whose readers serve each other, all on this machine."""
    model = weights()
    seen = bytearray()
    with (
        publisher_of(model, fanout=1) as publisher,
        contextlib.closing(Relay(publisher.address)) as relay,
        contextlib.ExitStack() as stack,
    ):
        relay.change = lambda piece: (seen.extend(piece), piece)[1]
        publish(publisher)
        readers = []
        for number in range(2):
            reader = live.Subscriber(weights(number), relay.address, token=TOKEN, serve=ANYWHERE)
            readers.append(stack.enter_context(reader))
            reader.wait(0, 20)
        for number in range(3):
            train(model, number)
            version = publish(publisher)
            for reader in readers:
                reader.wait(version, 20)
                reader.update()
                assert same(reader.model, model)
        assert readers[1].parent == readers[0].address
    for text in (b"safetensors", b"versions", b"BF16", b"F16", bytes(model["first"].data[:20])):
        assert text not in seen
    assert len(seen) > model["first"].nbytes


class Forger:
    """Lets a reader and the publisher prove themselves to each other, and then answers instead of
    the publisher, with the weights of a store of its own.

    Attributes:
        address: of the listener.
        answered: how many requests.
    """

    def __init__(self, target: str, store: Path) -> None:
        host, port = target.rsplit(":", 1)
        self._target = host, int(port)
        self._manifest = (store / "manifest.json").read_bytes()
        self._files = {each.name: each.read_bytes() for each in (store / "files").iterdir()}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.answered = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                reader, _ = self._listener.accept()
                threading.Thread(target=self._forge, args=(reader,), daemon=True).start()

    def _forge(self, reader: socket.socket) -> None:
        server = socket.create_connection(self._target)
        with contextlib.suppress(OSError, KeyError, struct.error), reader, server:
            server.sendall(_exactly(reader, 60 + 32))
            reader.sendall(_exactly(server, 32))
            server.sendall(_exactly(reader, 32))
            reader.sendall(_exactly(server, PROVED - 32))
            while True:
                message = _exactly(reader, *struct.unpack("<I", _exactly(reader, 4)))
                if message[0] != messages.HELLO:
                    answer = self._answer(message[0], message[1:])
                    reader.sendall(struct.pack("<I", len(answer)) + answer)
                    self.answered += 1

    def _answer(self, kind: int, body: bytes) -> bytes:
        if kind == messages.PLACE:
            return messages.placed(messages.Placed(b"R" * 16, 0, ""))
        if kind == messages.READ:
            offset, count = struct.unpack_from("<QI", body)
            part = self._files[body[12:].decode()][offset : offset + count]
            return messages.frame(messages.DATA, part)
        if struct.unpack("<16sqI", body)[1] >= 0:
            return messages.frame(messages.NOTHING)
        return messages.frame(messages.MANIFEST, self._manifest)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _exactly(source: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        piece = source.recv(count - len(got))
        if not piece:
            raise ConnectionError("it has ended")
        got += piece
    return got


def test_a_relay_replaces_no_weights(tmp_path, monkeypatch) -> None:
    """It replaces them where encryption="off" says that it may."""
    monkeypatch.setattr(peer, "CALL_SECONDS", 2.0)
    model, forged = weights(), weights(666)
    with weight_store.Store(tmp_path) as store:
        store.publish(forged, 0)
    for encryption in ("off", None):
        served = weights(2)
        before = {name: each.copy() for name, each in served.items()}
        with (
            publisher_of(model, encryption=encryption) as publisher,
            contextlib.closing(Forger(publisher.address, tmp_path)) as relay,
            live.Subscriber(
                served, relay.address, token=TOKEN, encryption=encryption
            ) as subscriber,
        ):
            publish(publisher)
            if encryption == "off":
                subscriber.wait(timeout=20)
                assert subscriber.update() == 0 and same(served, forged)
                continue
            wait_until(lambda s=subscriber: s.problem is not None, "it has noticed")
            assert relay.address in str(subscriber.problem)
            assert subscriber.update() is None and same(served, before)
            assert not relay.answered


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        (lambda piece: b"\0" * len(piece), "Unauthorized", "strips the encryption"),
        (lambda piece: None, "Timeout", "cuts what is encrypted"),
    ],
)
def test_whoever_strips_or_cuts_is_named(change, code: str, reason: str, monkeypatch) -> None:
    monkeypatch.setattr(peer, "CALL_SECONDS", 2.0)
    model, served = weights(), weights(2)
    with publisher_of(model) as publisher, contextlib.closing(Relay(publisher.address)) as relay:
        publish(publisher)
        relay.change = change
        with live.Subscriber(served, relay.address, token=TOKEN) as subscriber:
            wait_until(lambda: subscriber.problem is not None, "it has noticed")
            assert subscriber.problem.code == code and reason in str(subscriber.problem)
            assert relay.address in str(subscriber.problem)
            relay.change = lambda piece: piece
            wait_until(lambda: subscriber.latest == 0, "it has fetched the version")
            assert subscriber.update() == 0
            assert same(served, model)


def test_bytes_that_change_later() -> None:
    """End the connection; the next one begins again, and no weight is written before."""
    model, served = weights(), weights(2)
    with publisher_of(model) as publisher, contextlib.closing(Relay(publisher.address)) as relay:
        publish(publisher)
        relay.change = lambda piece: (
            piece[:-1] + bytes([piece[-1] ^ 1]) if len(piece) > 9_000 else piece
        )
        with live.Subscriber(served, relay.address, token=TOKEN) as subscriber:
            wait_until(lambda: subscriber.problem is not None, "it has noticed")
            assert "were changed on the way" in str(subscriber.problem)
            assert subscriber.update() is None
            relay.change = lambda piece: piece
            subscriber.wait(timeout=30)
            assert subscriber.update() == 0 and same(served, model)


def test_settings_are_equal_at_both_ends(monkeypatch) -> None:
    model = weights()
    for ours, theirs in ((None, "off"), ("off", None), ("auto", "required")):
        with publisher_of(model, encryption=ours) as publisher:
            publish(publisher)
            other = subscriber_of(weights(2), publisher, encryption=theirs)
            with other as subscriber:
                wait_until(lambda s=subscriber: s.problem is not None, "it has noticed")
                assert subscriber.problem.code == "Mismatch", subscriber.problem
                assert "encryption" in str(subscriber.problem)
    monkeypatch.setenv("DELTAWIRE_ENCRYPTION", "auto")
    with publisher_of(model) as publisher, subscriber_of(weights(2), publisher) as subscriber:
        publish(publisher)
        assert subscriber.wait(0, 20) == 0
    monkeypatch.delenv("DELTAWIRE_ENCRYPTION")
    with pytest.raises(InvalidArgumentError, match='"on"'):
        publisher_of(model, encryption="on")


def test_other_tokens_are_named() -> None:
    """With and without encryption, and learn nothing."""
    for encryption in (None, "off"):
        with publisher_of(weights(), encryption=encryption) as publisher:
            publish(publisher)
            other = live.Subscriber(
                weights(2), publisher.address, token=os.urandom(32), encryption=encryption
            )
            with pytest.raises(DeltawireError, match="another token") as error:
                other.wait(timeout=20)
            assert error.value.code == "Unauthorized" and not publisher.readers()
            other.close()
