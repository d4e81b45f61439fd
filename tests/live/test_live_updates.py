"""Publisher and subscribers that nothing disturbs: what arrives, when, and what is refused."""

import os
import signal
import threading

import numpy as np
import pytest
import torch
from deltawire import DeltawireError, InvalidArgumentError, live
from deltawire.errors import DTypeError
from deltawire.weights.live.peer import Peer
from deltawire.weights.store import reader
from deltawire.weights.store.writer import Writer

from tests.live.live_pairs import (
    ANYWHERE,
    TOKEN,
    arrive,
    publish,
    publisher_of,
    same,
    subscriber_of,
    train,
    wait_until,
    weights,
)
from tests.weight_store.store_models import bits_of, copy_of, small_model, step


def test_every_version_arrives_bit_for_bit() -> None:
    """All dtypes, tied weights, scalars and empty tensors; who has a version gets patches alone."""
    trained = small_model()
    served = copy_of(trained)
    with publisher_of(trained) as publisher, subscriber_of(served, publisher) as subscriber:
        for number in range(12):
            assert publish(publisher) == number == publisher.version
            assert subscriber.wait(number, 20) == number == subscriber.latest
            assert subscriber.update() == number == subscriber.version
            assert bits_of(served) == bits_of(trained)
            step(trained, number)
        assert subscriber.problem is None and subscriber.parent == publisher.address
        whole = sum(len(each) for each in bits_of(trained).values())
        manifests = 12 * 12 * 500  # the manifests of a model as small as this take more than it
        assert subscriber.bytes_received < manifests + whole / 2


def test_a_module_of_torch() -> None:
    """Nothing is there before the first version; `deltawire.torch` has the same classes."""
    assert (torch_door().Publisher, torch_door().Subscriber) == (live.Publisher, live.Subscriber)
    trained, served = (torch.nn.Linear(64, 32).bfloat16() for _ in range(2))
    with publisher_of(trained) as publisher, subscriber_of(served, publisher) as subscriber:
        wait_until(lambda: publisher.readers(), "the subscriber is connected")
        assert subscriber.update() is None and subscriber.version is None
        arrive(publisher, subscriber)
        before = served.weight.clone()
        assert not torch.equal(before, trained.weight)
        assert subscriber.update() == 0
        assert torch.equal(served.weight, trained.weight)
        assert torch.equal(served.bias, trained.bias)


def torch_door():
    import deltawire.torch

    return deltawire.torch


@pytest.mark.parametrize("merged", [(8,), ()])
def test_a_late_joiner(merged: tuple[int, ...]) -> None:
    """With other weights it reads a snapshot, with those of an old version what leads from it."""
    model = weights()
    old = {name: each.copy() for name, each in model.items()}
    with publisher_of(model, merged=merged, keep=4, snapshot_every=6) as publisher:
        for number in range(20):
            publish(publisher)
            train(model, number)
            if number == 17:
                known = {name: each.copy() for name, each in model.items()}
        publish(publisher)
        for late in (old, weights(2), known):
            with subscriber_of(late, publisher) as subscriber:
                assert subscriber.wait(20, 20) == 20 and subscriber.update() == 20
                assert same(late, model)
                received = subscriber.bytes_received
        assert received < sum(each.nbytes for each in model.values())
        assert len(publisher._storage._files) < 3 * 20


def test_updates_are_asked_for() -> None:
    """Weights stay as they are until `update`, which goes to the newest version at once."""
    model = weights()
    served = {name: each.copy() for name, each in model.items()}
    before = {name: each.copy() for name, each in model.items()}
    with publisher_of(model) as publisher, subscriber_of(served, publisher) as subscriber:
        for number in range(20):
            arrive(publisher, subscriber)
            train(model, number)
        assert same(served, before) and subscriber.version == 0
        arrive(publisher, subscriber)
        assert subscriber.update() == 20 and same(served, model)


def test_training_does_not_wait(monkeypatch) -> None:
    """`publish` returns while versions are still being made; the newest takes an older one's place,
    and is what the weights were when it was called."""
    model = weights()
    may_go, busy = threading.Event(), threading.Event()
    real = Writer.publish

    def slow(writer, staged, number, after):
        busy.set()
        assert may_go.wait(30)
        return real(writer, staged, number, after)

    monkeypatch.setattr(Writer, "publish", slow)
    with publisher_of(model) as publisher:
        publisher.publish()
        assert busy.wait(20)
        for number in range(1, 6):
            train(model, number)
            assert publisher.publish() == number
        kept = {name: each.copy() for name, each in model.items()}
        train(model, 9)
        with pytest.raises(DeltawireError, match="version 5 is not ready") as late:
            publisher.flush(0.05)
        assert late.value.code == "Timeout"
        may_go.set()
        publisher.flush(30)
        with subscriber_of(weights(2), publisher) as subscriber:
            subscriber.wait(5, 20)
            subscriber.update()
            assert same(subscriber.model, kept)
        manifest = publisher._writer._reader.manifest()
        assert [each.version for each in manifest.versions] == [0, 5]


def test_a_publisher_that_starts_again() -> None:
    """Its versions begin anew: subscribers find out by themselves what their weights are."""
    model = weights()
    served = weights(2)
    publisher = publisher_of(model)
    address = publisher.address
    with subscriber_of(served, publisher) as subscriber:
        for number in range(4):
            publish(publisher)
            train(model, number)
        subscriber.wait(3, 20)
        subscriber.update()
        publisher.close()
        with live.Publisher(model, address, token=TOKEN) as second:
            publish(second)
            train(model, 9)
            publish(second)
            wait_until(lambda: subscriber.latest == 1, "the new run's version is there")
            assert subscriber.update() == 1 and same(served, model)


def test_versions_in_a_folder(tmp_path) -> None:
    """They go on after a restart, and a store reads them."""
    from deltawire import weight_store

    model = weights()
    with publisher_of(model, folder=tmp_path) as publisher:
        publish(publisher)
        with pytest.raises(DeltawireError, match="already has a writer"):
            publisher_of(model, folder=tmp_path)
    train(model, 1)
    served = weights(2)
    with (
        publisher_of(model, folder=tmp_path) as publisher,
        subscriber_of(served, publisher) as subscriber,
    ):
        assert publisher.version == 0 and subscriber.wait(0, 20) == 0
        assert publish(publisher) == 1
        subscriber.wait(1, 20)
        subscriber.update()
        assert same(served, model)
    assert same(weight_store.Store(tmp_path).load(1, framework="numpy"), model)


def test_reading_excludes_updates() -> None:
    """`update` waits for the end of `reading`, not forever, and never within it."""
    model = weights()
    served = weights(2)
    with publisher_of(model) as publisher, subscriber_of(served, publisher) as subscriber:
        arrive(publisher, subscriber)
        with subscriber.reading(), pytest.raises(DeltawireError, match="wait for itself") as error:
            subscriber.update()
        assert error.value.code == "State"
        entered, leave = threading.Event(), threading.Event()

        def read() -> None:
            with subscriber.reading(), subscriber.reading():
                entered.set()
                leave.wait(20)

        reader = threading.Thread(target=read)
        reader.start()
        assert entered.wait(20)
        with pytest.raises(DeltawireError, match="being read for 0.05 s") as error:
            subscriber.update(timeout=0.05)
        assert error.value.code == "Timeout" and not same(served, model)
        leave.set()
        assert subscriber.update() == 0 and same(served, model)
        reader.join(20)


def test_ctrl_c_waits_for_the_writes(monkeypatch) -> None:
    """The subscriber then knows which version the weights are."""
    trained, served = weights(), weights(2)
    with publisher_of(trained) as publisher, subscriber_of(served, publisher) as subscriber:
        arrive(publisher, subscriber)
        real = reader._write_all

        def interrupted(changing: list) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            real(changing)

        monkeypatch.setattr(reader, "_write_all", interrupted)
        with pytest.raises(KeyboardInterrupt):
            subscriber.update()
        assert same(served, trained) and subscriber.version == 0


def test_what_is_refused(monkeypatch) -> None:
    model = weights()
    monkeypatch.delenv("DELTAWIRE_TOKEN", raising=False)
    with pytest.raises(InvalidArgumentError, match="DELTAWIRE_TOKEN"):
        live.Publisher(model, ANYWHERE)
    with pytest.raises(InvalidArgumentError, match="DELTAWIRE_TOKEN"):
        live.Subscriber(model, "127.0.0.1:1")
    with pytest.raises(InvalidArgumentError, match="HOST:PORT"):
        live.Subscriber(model, "127.0.0.1", token=TOKEN)
    with pytest.raises(DTypeError, match="'text'"):
        publisher_of({"text": "no weights"})
    with pytest.raises(InvalidArgumentError, match="fanout"):
        publisher_of(model, fanout=0)
    monkeypatch.setenv("DELTAWIRE_TOKEN", TOKEN.decode())
    with live.Publisher(model, ANYWHERE) as publisher:
        with pytest.raises(DeltawireError, match="is taken by another program") as error:
            live.Publisher(model, publisher.address)
        assert error.value.code == "AddressInUse"
        publisher.publish(7)
        for version in (7, 3, -1, 1.5):
            with pytest.raises(InvalidArgumentError, match="version"):
                publisher.publish(version)
        assert publisher.publish() == 8
        subscriber = live.Subscriber(model, publisher.address)
        subscriber.wait(8, 20)
        with pytest.raises(DeltawireError, match="version 9 did not come within 0.05 s") as error:
            subscriber.wait(9, 0.05)
        assert error.value.code == "Timeout"
        for call in (subscriber.wait, subscriber.update, publisher.flush):
            with pytest.raises(InvalidArgumentError, match="timeout=nan"):
                call(timeout=float("nan"))
        with pytest.raises(InvalidArgumentError, match="version='9'"):
            subscriber.wait("9")
        subscriber.close()
        with pytest.raises(DeltawireError, match="closed"):
            subscriber.update()
    with pytest.raises(DeltawireError, match="closed"):
        publisher.publish()


def test_an_error_of_an_earlier_version_is_told(monkeypatch) -> None:
    """By the next call; and then it goes on."""
    model = weights()

    def full(*_):
        raise OSError(28, "No space left on device")

    with publisher_of(model) as publisher, monkeypatch.context() as broken:
        broken.setattr(publisher._storage, "write", full)
        publisher.publish()
        with pytest.raises(DeltawireError, match="No space left.*version 0 is not there") as error:
            publisher.flush(20)
        assert error.value.code == "Io"
        broken.undo()
        assert publish(publisher) == 1


def test_numpy_is_enough() -> None:
    """No array is a tensor here, and nothing is contiguous."""
    trained = {"weights": np.arange(600, dtype=np.float32).reshape(20, 30).T}
    served = {"weights": np.zeros((20, 30), np.float32).T}
    with publisher_of(trained) as publisher, subscriber_of(served, publisher) as subscriber:
        arrive(publisher, subscriber)
        subscriber.update()
        assert np.array_equal(served["weights"], trained["weights"])


def test_weights_that_nobody_gave() -> None:
    """The first update makes them, later ones change them in place."""
    trained = small_model()
    with publisher_of(trained) as publisher, subscriber_of(None, publisher) as subscriber:
        arrive(publisher, subscriber)
        assert subscriber.model is None and subscriber.update() == 0
        served = subscriber.model
        assert bits_of(served) == bits_of(trained) and served["head"] is served["embedding"]
        step(trained, 1)
        arrive(publisher, subscriber)
        assert subscriber.update() == 1
        assert subscriber.model is served and bits_of(served) == bits_of(trained)


def test_a_reader_keeps_what_the_publisher_keeps(monkeypatch) -> None:
    """Whoever updates seldom reads each file once, and holds no more than the publisher."""
    model = weights()
    served = {name: each.copy() for name, each in model.items()}
    names: list[str] = []
    real = Peer.read

    def read(peer: Peer, name: str, offset: int, count: int) -> bytes:
        names.append(name)
        return real(peer, name, offset, count)

    monkeypatch.setattr(Peer, "read", read)
    with (
        publisher_of(model, keep=4, snapshot_every=4, merged=()) as publisher,
        subscriber_of(served, publisher) as subscriber,
    ):
        for number in range(20):
            arrive(publisher, subscriber)
            train(model, number)
            if number in (3, 12, 13, 14, 15):
                subscriber.update()
        assert len(set(names)) == len(names) > 15
        named = publisher._writer._reader.manifest().files()
        assert subscriber._following.fetched.held() <= named
