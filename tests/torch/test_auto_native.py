"""The native all-reduce of `register(model, "auto")`, with works that a test completes."""

import contextlib
import threading
import types

import pytest
import torch
from deltawire.torch.auto import native


class Group:
    def size(self):
        return 4


class Bucket:
    def __init__(self, *values):
        self.values = torch.tensor(values)

    def buffer(self):
        return self.values


class Work:
    def __init__(self, error=None):
        self.error = error
        self.over = threading.Event()

    def wait(self):
        assert self.over.wait(30)
        if self.error is not None:
            raise self.error


class Measuring:
    def end(self):
        pass


@pytest.fixture
def begun(monkeypatch):
    """Works of the coming all-reduces; one that is an exception is raised at once."""
    works = []

    def all_reduce(tensor, group, async_op):
        work = works.pop(0)
        if isinstance(work, Exception):
            raise work
        return work

    monkeypatch.setattr(native.dist, "all_reduce", all_reduce)
    return works


def threads():
    return [each for each in threading.enumerate() if each.name == "deltawire native"]


def test_buckets_complete_in_place_and_errors_reach_their_own_future(begun):
    exchange = native.NativeExchange(Measuring(), Group())
    works = [Work(), Work(RuntimeError("connection closed")), Work()]
    begun += [*works[:2], ValueError("no such group"), works[2]]
    buckets = [Bucket(4.0, 8.0), Bucket(1.0), Bucket(1.0), Bucket(2.0)]
    futures = [exchange.all_reduce(bucket) for bucket in buckets]
    assert not futures[0].done()
    for work in works:
        work.over.set()
    assert futures[0].wait() is buckets[0].values
    assert buckets[0].values.tolist() == [1.0, 2.0]  # a quarter; the works add nothing
    with pytest.raises(RuntimeError, match="connection closed"):
        futures[1].wait()
    with pytest.raises(ValueError, match="no such group"):
        futures[2].wait()
    assert futures[3].wait().tolist() == [0.5]
    exchange.close()


@pytest.mark.parametrize("closed", [True, False])
def test_the_thread_ends_after_the_buckets_under_way(begun, closed):
    """By close(), or where the model was dropped."""
    exchange = native.NativeExchange(Measuring(), Group())
    before = set(threads())
    work = Work()
    begun.append(work)
    future = exchange.all_reduce(Bucket(4.0))
    (thread,) = set(threads()) - before
    if closed:
        exchange.close()
    del exchange
    work.over.set()
    assert future.wait().tolist() == [1.0]
    thread.join(30)
    assert not thread.is_alive()


def test_on_a_device_a_stream_of_the_thread_waits(begun, monkeypatch):
    """Backward's own would wait for each bucket before it goes on."""
    entered, gradients = [], types.SimpleNamespace(device=torch.device("cuda", 1))
    gradients.div_ = lambda size: gradients

    class Within(contextlib.nullcontext):
        def __enter__(self):
            entered.append((self.enter_result, threading.current_thread().name))

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"a stream of {device}")
    monkeypatch.setattr(torch.cuda, "stream", Within)
    monkeypatch.setattr(native, "future_of", lambda buffer: torch.futures.Future())
    exchange, work = native.NativeExchange(Measuring(), Group()), Work()
    begun.append(work)
    work.over.set()
    bucket = types.SimpleNamespace(buffer=lambda: gradients)
    assert exchange.all_reduce(bucket).wait() is gradients
    assert entered == [("a stream of cuda:1", "deltawire native")]
    exchange.close()
