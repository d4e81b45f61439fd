"""Live weights when something is wrong: each fault is named, costs nobody else anything, and never
is a part of a version written."""

import contextlib
import copy
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import pytest
from deltawire import DeltawireError, live, weight_store
from deltawire.weights.live import connection, following, messages, peer, server
from deltawire.weights.store import download
from refusals import raised

from tests.live.changing_relay import Relay
from tests.live.live_pairs import (
    SECRETS,
    TOKEN,
    arrive,
    publish,
    publisher_of,
    reader_by_hand,
    same,
    subscriber_of,
    train,
    wait_until,
    weights,
)

READER = """
import sys, numpy as np
from deltawire import live
model = {"first": np.zeros(20000, np.float16), "second": np.zeros((200, 10), np.float16)}
subscriber = live.Subscriber(model, sys.argv[1], token=sys.argv[2].encode(), cache=sys.argv[3])
while True:
    subscriber.wait(timeout=60)
    print(subscriber.update(), flush=True)
"""


def test_a_killed_reader_comes_back(tmp_path) -> None:
    """The publisher drops it; with its cache it needs no snapshot again."""
    model = weights()
    reader = None
    with publisher_of(model) as publisher:
        command = [sys.executable, "-c", READER, publisher.address, TOKEN.decode(), str(tmp_path)]
        try:
            publish(publisher)
            reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert reader.stdout.readline() == "0\n"
            reader.send_signal(signal.SIGKILL)
            reader.wait(20)
            train(model, 1)
            publish(publisher)
            wait_until(lambda: not publisher.readers(), "the publisher has dropped it")
            sent = publisher.bytes_sent
            reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert reader.stdout.readline() == "1\n"
            assert publisher.bytes_sent - sent < model["first"].nbytes / 2
        finally:
            if reader is not None:
                reader.kill()
                reader.wait(20)
                reader.stdout.close()


def test_bytes_that_change_in_a_server() -> None:
    """Are found by their checksum; no weight is written until they are right."""
    model, served = weights(), weights(2)
    before = {name: each.copy() for name, each in served.items()}
    with publisher_of(model) as publisher, pytest.MonkeyPatch.context() as damaged:
        publish(publisher)
        real = peer.Peer.read

        def flip(self: peer.Peer, name: str, offset: int, count: int) -> bytes:
            data = real(self, name, offset, count)
            return data[:-1] + bytes([data[-1] ^ 1])

        damaged.setattr(peer.Peer, "read", flip)
        with (
            pytest.warns(RuntimeWarning, match="its checksum is wrong"),
            subscriber_of(served, publisher) as subscriber,
        ):
            wait_until(lambda: subscriber.problem is not None, "it has noticed")
            assert subscriber.problem.code == "Corrupt"
            with pytest.raises(DeltawireError, match="did not come.*checksum is wrong"):
                subscriber.wait(timeout=0.01)
            assert subscriber.update() is None and same(served, before)
            damaged.undo()
            subscriber.wait(timeout=20)
            assert subscriber.update() == 0 and same(served, model)


def test_connections_that_break(tmp_path) -> None:
    """Are made again, and what has arrived is in the cache."""
    model, served = weights(), weights(2)
    ended = []
    with (
        publisher_of(model) as publisher,
        contextlib.closing(Relay(publisher.address)) as relay,
        pytest.MonkeyPatch.context() as small,
    ):
        small.setattr(download, "RANGE_BYTES", 4_000)
        passed = 0

        def cut(piece: bytes) -> bytes | None:
            nonlocal passed
            passed += len(piece)
            if passed > 12_000:
                passed = 0
                ended.append(piece)
                return None
            return piece

        relay.change = cut
        publish(publisher)
        with live.Subscriber(served, relay.address, token=TOKEN, cache=tmp_path) as subscriber:
            subscriber.wait(timeout=30)
            assert subscriber.update() == 0 and same(served, model)
            # The manifest and the handshake are sent again each time, no range is.
            assert subscriber.bytes_received < 2 * sum(each.nbytes for each in model.values())
        assert len(ended) > 2


def test_weights_that_are_not_the_base() -> None:
    """Nothing is written; the next update starts from a snapshot."""
    model, served = weights(), weights()
    with publisher_of(model) as publisher, subscriber_of(served, publisher) as subscriber:
        arrive(publisher, subscriber)
        assert subscriber.update() == 0
        served["second"][3, 4] = 7
        broken = {name: each.copy() for name, each in served.items()}
        train(model, 1)
        arrive(publisher, subscriber)
        error = raised(DeltawireError, subscriber.update, match="are not version 0.*a snapshot is")
        assert error.code == "Mismatch" and "from_version" not in str(error)
        assert same(served, broken) and subscriber.version is None
        subscriber.wait(1, 20)
        assert subscriber.update() == 1 and same(served, model)


def test_a_model_of_other_tensors_asks_for_no_snapshot() -> None:
    model, served = weights(), weights()
    served["second"] = served["second"].reshape(10, -1)
    with publisher_of(model) as publisher, subscriber_of(served, publisher) as subscriber:
        arrive(publisher, subscriber)
        error = raised(DeltawireError, subscriber.update, match="F16 .10, 200. .*same there$")
        assert error.code == "Mismatch"


def test_threads_and_connections_are_not_copied(tmp_path) -> None:
    with publisher_of(weights()) as publisher, subscriber_of(None, publisher) as subscriber:
        for each in (publisher, subscriber):
            for way in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match=f"a {type(each).__name__} can't be copied or"):
                    way(each)
    assert not pickle.loads(pickle.dumps(weight_store.Store(tmp_path))).versions()


def test_a_disk_without_room(monkeypatch, tmp_path) -> None:
    """The cache's folder is named, the weights stay, and nothing is downloaded in vain."""
    model, served = weights(), weights(2)
    room = shutil.disk_usage(tmp_path)._replace(free=10_000)
    with publisher_of(model) as publisher, monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _folder: room)
        publish(publisher)
        with subscriber_of(served, publisher, cache=tmp_path) as subscriber:
            wait_until(lambda: subscriber.problem is not None, "it has noticed")
            assert subscriber.problem.code == "Io"
            assert "No space left" in str(subscriber.problem)
            assert str(tmp_path) in str(subscriber.problem)
            assert subscriber.bytes_received < model["first"].nbytes / 2
            full.undo()
            monkeypatch.setattr(following, "WAIT_SECONDS", 0.2)
            subscriber.wait(timeout=20)
            assert subscriber.update() == 0 and same(served, model)


def stuck_reader(publisher: live.Publisher) -> connection.Connection:
    """Has proved itself, asks for a file again and again, and reads nothing."""
    stuck = reader_by_hand(publisher.address)
    name = next(iter(publisher._storage.names()))
    for _ in range(20):
        stuck.send(messages.request(messages.Read(name, 0, messages.MAX_RANGE)))
    return stuck


def test_a_reader_that_is_stuck(monkeypatch) -> None:
    """Neither training nor other readers notice; it loses its connection."""
    model = weights(count=2_000_000)
    with publisher_of(model) as publisher, subscriber_of(weights(2, 2_000_000), publisher) as other:
        arrive(publisher, other)
        other.update()
        monkeypatch.setattr(connection, "SLOWEST", 2_000_000)
        monkeypatch.setattr(connection, "PATIENCE", 0.5)
        stuck = stuck_reader(publisher)
        for number in range(1, 4):
            train(model, number)
            arrive(publisher, other)
            assert other.update() == number
        wait_until(lambda: len(publisher._server._readers) == 1, "its connection has ended")
        stuck.close()


def test_strangers_take_no_reader_s_place() -> None:
    """A hundred silent ones, and some with garbage."""
    model, served = weights(), weights(2)
    with publisher_of(model, max_readers=1) as publisher, contextlib.ExitStack() as strangers:
        host, port = publisher.address.rsplit(":", 1)
        publish(publisher)
        for number in range(100):
            stranger = strangers.enter_context(socket.create_connection((host, int(port))))
            with contextlib.suppress(OSError):
                if number % 3 == 0:
                    stranger.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"[: number % 30])
        with subscriber_of(served, publisher) as subscriber:
            subscriber.wait(timeout=20)
            assert subscriber.update() == 0 and same(served, model)
            refused = subscriber_of(weights(3), publisher)
            reason = "has its 1 readers (max_readers)"
            wait_until(lambda: reason in str(refused.problem), "it is refused")
            refused.close()


def test_a_silent_server(monkeypatch) -> None:
    """A listener that says nothing is given up in time."""
    monkeypatch.setattr(peer, "CALL_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        error = raised(DeltawireError, peer.Peer, address, SECRETS)
        assert error.code == "Timeout" and time.monotonic() - began < 20
    with pytest.raises(DeltawireError, match=f"nobody listens at {address}") as error:
        peer.Peer(address, SECRETS)
    assert error.value.code == "PeerLost"


def test_a_reader_that_says_nothing_more(monkeypatch) -> None:
    """Has its connection ended."""
    monkeypatch.setattr(server, "IDLE_SECONDS", 2.0)
    with publisher_of(weights()) as publisher:
        silent = peer.Peer(publisher.address, SECRETS)
        silent.place(messages.Place(-1, 0, "", False))
        assert len(publisher.readers()) == 1
        wait_until(lambda: not publisher.readers(), "it was dropped")
        silent.close()


def code_of(call: Callable[[], object]) -> str:
    try:
        call()
    except DeltawireError as error:
        return error.code
    return ""


def test_a_forked_process_ends_no_connection() -> None:
    """When it closes what it has inherited, which it can't use."""
    with publisher_of(weights()) as publisher, subscriber_of(weights(2), publisher) as subscriber:
        arrive(publisher, subscriber)
        peers = list(subscriber._following._peers)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork
            child = os.fork()
        if child == 0:
            told = []
            try:
                calls = publisher.publish, subscriber.update, subscriber.wait
                told = [code_of(call) for call in calls]
                subscriber.close()
                publisher.close()
            finally:
                os._exit(told != ["State"] * 3)
        assert os.waitpid(child, 0)[1] == 0
        arrive(publisher, subscriber)
        assert subscriber._following._peers == peers


def test_a_forked_process_keeps_no_port() -> None:
    """When the publisher's own process has ended without `close`."""
    program = (
        "import os, sys, time, numpy, deltawire.live as live\n"
        "publisher = live.Publisher({'a': numpy.zeros(9)}, '127.0.0.1:0', token='x' * 32)\n"
        "if os.fork() == 0:\n"
        "    print(publisher.address, os.getpid(), flush=True)\n"
        "    time.sleep(60)\n"
        "os._exit(0)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        address, child = process.stdout.readline().split()
        process.wait(20)
        try:
            live.Publisher(weights(), address, token=TOKEN).close()
        finally:
            os.kill(int(child), signal.SIGKILL)


ENDING = """
import sys, numpy, deltawire.live as live
model = {"weights": numpy.zeros(3_000_000, numpy.float16)}
publisher = live.Publisher(model, "127.0.0.1:0", token="x" * 32)
subscriber = live.Subscriber({"weights": model["weights"] + 1}, publisher.address, token="x" * 32)
publisher.publish()
subscriber.wait(timeout=60)
print("ready", flush=True)
while True:
    model["weights"][::7] += 1
    publisher.publish()
    subscriber.update()
    if sys.argv[1] == "end":
        sys.exit(0)
"""


@pytest.mark.parametrize("how", ["end", "Ctrl-C"])
def test_programs_that_end_without_close(how: str) -> None:
    """Their threads have ended before the interpreter does."""
    command = [sys.executable, "-c", ENDING, how]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        if how == "Ctrl-C":
            process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == (-signal.SIGINT if how == "Ctrl-C" else 0), said
    assert said.strip().endswith("KeyboardInterrupt") if how == "Ctrl-C" else not said
