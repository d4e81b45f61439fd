"""The modelled link never completes early, and leaves the all-reduce's numbers alone."""

import time

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

from lab.demo.modelled_link import ModelledLink  # noqa: E402
from lab.ranks.links import ring_bytes  # noqa: E402

WORLD_SIZE = 4  # of the model; the process group here has one rank
RATE = 1e6
AT_ONCE = 25.0  # seconds that an immediate operation may take on a busy machine


class Bucket:
    """As much of DDP's GradBucket as the hook needs."""

    def __init__(self, tensor):
        self._tensor = tensor

    def buffer(self):
        """The flat gradients."""
        return self._tensor


@pytest.fixture(autouse=True)
def group():
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_bucket_takes_as_long_as_the_link_needs():
    link = ModelledLink(WORLD_SIZE, RATE)
    due = ring_bytes(4 * 10_000, WORLD_SIZE) / RATE
    started = time.monotonic()
    mean = link.native_hook(None, Bucket(torch.full((10_000,), 8.0))).wait()
    taken = time.monotonic() - started
    assert taken >= due
    assert torch.equal(mean, torch.full((10_000,), 8.0 / WORLD_SIZE))
    assert 1e3 * due <= link.take_exchange_ms() <= 1e3 * taken
    assert link.take_exchange_ms() == 0
    link.close()


def test_buckets_share_the_link():
    link = ModelledLink(WORLD_SIZE, RATE)
    counts = (20_000, 5_000, 1_000)
    started = time.monotonic()
    waiting = [link.native_hook(None, Bucket(torch.ones(count))) for count in counts]
    sent = 0.0
    for future, count in zip(waiting, counts, strict=True):
        future.wait()
        sent += ring_bytes(4 * count, WORLD_SIZE)
        assert time.monotonic() - started >= sent / RATE
    assert link.take_exchange_ms() >= 1e3 * sent / RATE - 1
    link.close()


def test_an_idle_link_saves_nothing_up():
    link = ModelledLink(WORLD_SIZE, RATE)
    link.native_hook(None, Bucket(torch.ones(1_000))).wait()
    time.sleep(0.1)
    started = time.monotonic()
    link.native_hook(None, Bucket(torch.ones(10_000))).wait()
    assert time.monotonic() - started >= ring_bytes(40_000, WORLD_SIZE) / RATE
    link.close()


def test_without_a_rate_nothing_waits():
    count = 10_000_000
    assert ring_bytes(4 * count, WORLD_SIZE) / RATE > 2 * AT_ONCE
    link = ModelledLink(WORLD_SIZE, None)
    started = time.monotonic()
    link.native_hook(None, Bucket(torch.ones(count))).wait()
    assert time.monotonic() - started < AT_ONCE
    link.close()


def test_a_failing_all_reduce_is_an_error_in_the_training_loop(monkeypatch: pytest.MonkeyPatch):
    class Failing:
        def wait(self):
            raise RuntimeError("connection closed by peer")

    monkeypatch.setattr(dist, "all_reduce", lambda buffer, async_op: Failing())
    link = ModelledLink(WORLD_SIZE, RATE)
    with pytest.raises(RuntimeError, match="connection closed by peer"):
        link.native_hook(None, Bucket(torch.ones(10))).wait()
    link.close()
