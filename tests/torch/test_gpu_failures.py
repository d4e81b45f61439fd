"""Failures while gradients are on their way from a GPU: a typed error on every rank, in time, and
nothing that stays behind."""

import threading
import time

import deltawire.torch
import gpu
import pytest
import torch
from deltawire.errors import DeltawireError
from gpu import DEVICE, OnDevice, backward, batch, results
from models import descend, wrapped
from torch.nn.parallel import DistributedDataParallel

pytestmark = gpu.needs_gpu


def spoiled(rank, world_size, report, twins):
    """Rank 1's third loss is NaN, which 3LC can't carry."""
    model = wrapped(OnDevice())
    hook = deltawire.torch.register(model, "3lc", timeout=20, twins=twins)
    for step in range(2):
        backward(model, rank, step)
        descend(model)
    x, y = batch(rank, 2)
    model.zero_grad()
    loss = (model(x) - y).square().mean() * (float("nan") if rank == 1 else 1.0)
    try:
        loss.backward()
        caught = None
    except DeltawireError as error:
        caught = error
    hook.close()
    assert caught is hook.last_error
    return caught.code, caught.suspect, caught.last_committed_step, hook.metrics()["steps"]


@gpu.staged_or_on_twins
def test_nan_is_the_same_error_on_every_rank(twins):
    values = results(spoiled, 2, twins)
    print(values)
    assert values[0] == values[1]
    assert values[0][1:] == (1, 1, 2)


def endless(rank, world_size, report, twins):
    model = wrapped(OnDevice())
    hook = deltawire.torch.register(model, "3lc", timeout=60, twins=twins)

    def step(number):
        backward(model, rank, number)
        descend(model)

    return gpu.until_another_ends(hook, report, step)


@gpu.staged_or_on_twins
def test_a_killed_rank_is_named_at_once(twins):
    gpu.kill_a_rank_of(endless, twins)


class Busy(torch.autograd.Function):
    """Keeps the GPU busy for seconds in backward, once."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        for _ in range(6):
            torch.cuda._sleep(2_000_000_000)  # about 1 s each
        return gradient.clone()


def held_up(rank, world_size, report, twins):
    """Rank 0's GPU has other things to do than to compute gradients."""
    for timeout in (60.0, 2.0):  # the first hook has the twins compiled
        model = wrapped(OnDevice())
        hook = deltawire.torch.register(model, "fp32", timeout=timeout, twins=twins)
        backward(model, rank, 0)
        if timeout > 2:
            hook.close()
    x, y = batch(rank, 1)
    y_hat = model(x)
    loss = ((Busy.apply(y_hat) if rank == 0 else y_hat) - y).square().mean()
    began = time.monotonic()
    try:
        loss.backward()
        caught = None
    except DeltawireError as error:
        caught = error
    took = time.monotonic() - began
    hook.close()
    return caught.code, caught.suspect, str(caught), took


@gpu.needs_cuda
@pytest.mark.parametrize(
    ("twins", "late"),
    [(False, "on the host"), pytest.param(True, "complete", marks=gpu.needs_twins)],
)
def test_a_copy_that_takes_too_long_is_an_error_on_every_rank(twins, late):
    values = results(held_up, 2, twins)
    print(values)
    assert [suspect for _, suspect, *_ in values] == [0, 0]
    assert all(f"was not {late} after 2 s" in text for _, _, text, _ in values)
    assert values[0][0] == "Timeout"


def staging_threads():
    return [each.name for each in threading.enumerate() if "staging" in each.name]


def ended(rank, world_size, report):
    """What a closed hook leaves: (threads, whether the model trains on without)."""
    model = wrapped(OnDevice())
    hook = deltawire.torch.register(model, "3lc")
    backward(model, rank, 0)
    during = staging_threads()
    hook.close()
    hook.close()
    again = wrapped(model.module)
    backward(again, rank, 1)
    return during, staging_threads(), all(p.grad.isfinite().all() for p in again.parameters())


def test_close_leaves_no_thread():
    assert results(ended, 2) == [(["deltawire-staging"], [], True)] * 2


def pinned(rank, world_size, report):
    """(gradients' bytes, the hook's pinned memory, what torch took for it, buckets by step) of a
    model whose buckets are cut anew after the first step."""
    torch.manual_seed(7)
    module = torch.nn.Sequential(*(torch.nn.Linear(1500, 1500) for _ in range(8))).to(DEVICE)
    model = DistributedDataParallel(module, bucket_cap_mb=10)
    hook = deltawire.torch.register(model, "3lc", twins=False)
    before = torch.cuda.host_memory_stats()["allocated_bytes.current"]  # torch gives none back
    buckets = []
    for step in range(4):
        x = torch.randn(4, 1500, generator=torch.Generator().manual_seed(step)).to(DEVICE)
        model.zero_grad()
        model(x).square().mean().backward()
        buckets.append(hook.step_records[-1]["buckets"])
    taken = torch.cuda.host_memory_stats()["allocated_bytes.current"] - before
    block = hook._staging._block
    assert block.is_pinned()
    hook.close()
    return 4 * sum(p.numel() for p in model.parameters()), block.numel(), taken, buckets


@gpu.needs_cuda
def test_pinned_memory_is_the_gradients_size():
    for gradients, block, taken, buckets in results(pinned, 2):
        print(f"gradients {gradients}, block {block}, pinned anew {taken} bytes, {buckets}")
        assert buckets[0] == 1 and buckets[-1] > 2
        assert gradients <= block < gradients + 64 * 300
        assert taken <= 1 << block.bit_length()  # torch rounds up
