"""Ranks that share the machine's GPU, and what their means have to equal.

These tests need a GPU that PyTorch sees, and are skipped without one. DELTAWIRE_TEST_DEVICE=cpu
runs them on CPU tensors whose buckets are staged like a GPU's, but for those that need the device.
"""

import copy
import importlib.util
import os
import signal
import time

import models
import pytest
import ranks
import torch
from deltawire.errors import DeltawireError
from host_twin import LIBRARY, HostTwin
from models import Net, wrapped

DEVICE = torch.device(os.environ.get("DELTAWIRE_TEST_DEVICE", "cuda"))
_NO_GPU = "PyTorch sees no GPU (torch.cuda.is_available() is false)"
_HERE = torch.cuda.is_available()

# What `register(twins=)` gets where the device is to encode.
ON_DEVICE = True if DEVICE.type == "cuda" else HostTwin
_CAN_CODE = importlib.util.find_spec("triton") if DEVICE.type == "cuda" else LIBRARY.is_file()
needs_twins = pytest.mark.skipif(not _CAN_CODE, reason="needs Triton, or target deltawire")

staged_or_on_twins = pytest.mark.parametrize(
    "twins", [False, pytest.param(ON_DEVICE, marks=needs_twins)], ids=["staged", "twins"]
)

needs_gpu = pytest.mark.skipif(not _HERE and DEVICE.type == "cuda", reason=_NO_GPU)
needs_cuda = pytest.mark.skipif(not _HERE or DEVICE.type != "cuda", reason=_NO_GPU)


def on_device(rank, world_size, report, worker, *args):
    """Runs a worker where every kernel gives the same bits each time."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    os.environ["LOCAL_WORLD_SIZE"] = str(world_size)
    torch.use_deterministic_algorithms(True, warn_only=True)
    if DEVICE.type == "cuda":
        torch.cuda.set_device(0)
    else:
        os.environ["DELTAWIRE_FORCE_STAGING"] = "on"
    return worker(rank, world_size, report, *args)


def results(worker, world_size, *args):
    """As `ranks.results`. No rank is forked: a process can't use a GPU that a parent of it has
    asked for."""
    return ranks.results(on_device, world_size, worker, *args, fresh=range(world_size))


def started(worker, world_size, *args):
    """As `ranks.started`."""
    return ranks.started(on_device, world_size, worker, *args, fresh=range(world_size))


def kill_a_rank_of(endless, *args):
    """Three ranks train; rank 1 is killed, and the others name it at once.

    Args:
        endless: a worker that reports "training", and returns (suspect, text, seconds that closing
            took) of the error that ends its training.
        args: what it takes further.
    """
    with started(endless, 3, *args) as running:
        for rank in range(3):
            assert running.hear(rank) == "training"
        running.signal(1, signal.SIGKILL)
        outcomes = running.outcomes([0, 2], timeout=ranks.AT_ONCE)
    for outcome in outcomes.values():
        assert outcome.raised is None, outcome.text
        suspect, text, closing = outcome.value
        assert suspect == 1 and "rank 1" in text
        assert closing < ranks.AT_ONCE


def until_another_ends(door, report, step, first=3):
    """Of a rank that calls `step(number)` until another rank's end is an error: (suspect, text,
    seconds that closing took). It reports "training" before step `first`."""
    try:
        for number in range(1_000_000):
            if number == first:
                report("training")
            step(number)
    except DeltawireError as error:
        began = time.monotonic()
        door.close()
        return error.suspect, str(error), time.monotonic() - began
    return None


class OnDevice(Net):
    """The network, with inputs, outputs and loss on the device."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.to(DEVICE, dtype)

    def forward(self, x):
        return self.layers(x)


class Given(Net):
    """The same parameters on the CPU; its gradients are whatever it is given."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.to("cpu", dtype)

    def forward(self, gradients):
        pairs = zip(self.parameters(), gradients, strict=True)
        return sum((parameter * gradient).sum() for parameter, gradient in pairs)


def batch(rank, step, dtype=torch.float32):
    return [each.to(DEVICE, dtype) for each in models.batch(rank, step)]


def backward(model, rank, step, dtype=torch.float32):
    x, y = batch(rank, step, dtype)
    model.zero_grad()
    (model(x) - y).square().mean().backward()


def same_bits(ours, theirs):
    """Whether two dense tensors, on whatever devices, are equal bit for bit."""
    each = [t.detach().cpu().reshape(-1).view(torch.uint8) for t in (ours, theirs)]
    return torch.equal(*each)


class Twin:
    """A model's exchange repeated on the CPU, where nothing is staged: a second hook, which is
    given the gradients that this rank alone computes.

    Args:
        model: a DDP model of `OnDevice`.
        register: registers a DDP model.
    """

    def __init__(self, model, register):
        self._model = model
        self._alone = copy.deepcopy(model.module)
        self._dtype = next(model.parameters()).dtype
        self._given = wrapped(Given(self._dtype))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DELTAWIRE_FORCE_STAGING", "off")
            self.hook = register(self._given)

    def compute(self, rank, step):
        """The means of the step that the model is about to make, in the order of its parameters."""
        self._alone.load_state_dict(self._model.module.state_dict())
        backward(self._alone, rank, step, self._dtype)
        self._given.zero_grad()
        self._given([each.grad.cpu() for each in self._alone.parameters()]).backward()
        return [each.grad for each in self._given.parameters()]
