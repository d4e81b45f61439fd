"""Somebody between a publisher and its subscribers, who has no token: reads nothing, and replaces
nothing."""

import contextlib
import os

import pytest
from deltawire import DeltawireError, InvalidArgumentError, live
from deltawire.weights.live import peer

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
