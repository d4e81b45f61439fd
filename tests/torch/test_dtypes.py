"""Gradients as they come: of 16 bits, of several dtypes in one model, and what is refused."""

import copy

import deltawire.torch
import numpy as np
import pytest
import torch
import torch.distributed as dist
from models import WIDTH, batch, descend, fingerprint, wrapped
from ranks import attempted, results

STEPS = 3
OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7)
EACH = (torch.float32, torch.bfloat16, torch.float16)


class Mixed(torch.nn.Module):
    """A layer of each dtype, and small parameters of each."""

    def __init__(self, dtypes=EACH):
        super().__init__()
        torch.manual_seed(7)
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(WIDTH, WIDTH, dtype=dtype) for dtype in dtypes
        )

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x.to(layer.weight.dtype)))
        return x


def own_gradients(model, rank, number):
    """By name, what this rank alone computes: float32 arrays, exactly."""
    x, y = batch(rank, number)
    model.zero_grad()
    (model(x).float() - y).square().mean().backward()
    return {name: p.grad.float().numpy().copy() for name, p in model.named_parameters()}


def train(model, rank, number, rate=0.5):
    x, y = batch(rank, number)
    model.zero_grad()
    (model(x).float() - y).square().mean().backward()
    descend(model, rate)


def mean_in_float32(shares):
    """In rank order, each share divided first: what accumulating decoders do."""
    scale = np.float32(1) / np.float32(len(shares))
    total = np.zeros(shares[0].shape, np.float32)
    for share in shares:
        total += scale * share
    return total


def lossless(rank, world_size, report, spec):
    bare = Mixed()
    model = wrapped(copy.deepcopy(bare))
    hook = deltawire.torch.register(model, spec)
    for number in range(STEPS):
        bare.load_state_dict(model.module.state_dict())
        shares = [None] * world_size
        dist.all_gather_object(shares, own_gradients(bare, rank, number))
        train(model, rank, number)
        for name, parameter in model.module.named_parameters():
            expected = mean_in_float32([share[name] for share in shares])
            expected = torch.from_numpy(expected).to(parameter.dtype)  # rounded once
            assert torch.equal(parameter.grad, expected), f"step {number}, {name}"
    raw = hook.metrics()["raw_bytes"]
    return fingerprint(model), raw, {p.grad.dtype for p in model.parameters()}


@pytest.mark.parametrize(("spec", "world_size"), [("direct(fp32)", 3), ("gather(fp32)", 2)])
def test_a_lossless_mean_is_rounded_once(spec, world_size):
    found = results(lossless, world_size, spec)
    assert len({bits for bits, *_ in found}) == 1, "the replicas differ"
    assert found[0][2] == set(EACH)
    layer = WIDTH * WIDTH + WIDTH
    times = 2 * (world_size - 1) if spec.startswith("direct") else world_size * (world_size - 1)
    assert sum(raw for _, raw, _ in found) == times * layer * (4 + 2 + 2)


def refused(rank, world_size, report):
    texts = []
    for dtype in (torch.float64, torch.complex64):
        module = torch.nn.ParameterDict({"odd": torch.zeros(8, dtype=dtype)})
        texts.append(attempted(lambda m=module: deltawire.torch.register(wrapped(m), "fp32")))
    module = Mixed((torch.float32, torch.float64))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    texts.append(
        attempted(lambda: deltawire.torch.LocalSteps(module, optimizer, steps=1, reducer="fp32"))
    )
    return texts


def test_what_can_not_be_exchanged_is_named_with_the_way_out():
    for texts in results(refused, 2):
        kinds = [kind for kind, *_ in texts]
        # PyTorch 2.6's DistributedDataParallel takes no complex parameters itself.
        assert kinds == ["DTypeError"] * 3 or (OLD and kinds[1] == "RuntimeError"), texts
        double, imaginary, local = (text for _, text, _ in texts)
        assert "parameter 'odd' is torch.float64" in double and ".float()" in double
        if kinds[1] == "DTypeError":
            assert "parameter 'odd' is torch.complex64" in imaginary and ".float()" in imaginary
        assert "'layers.1.weight' is torch.float64" in local and ".float()" in local


def test_explain_measures_16_bits_by_their_own_bytes():
    rows = {row.name: row for row in deltawire.torch.explain(Mixed(), "fp32").rows}
    assert [rows[f"layers.{i}.weight"].times_smaller for i in range(3)] == [1.0, 0.5, 0.5]
