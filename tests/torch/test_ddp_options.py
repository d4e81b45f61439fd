"""DDP's own options and ways to train: through the hook with fp32 they give the gradients that
plain DDP gives, and replicas that are bit-equal.

With two ranks both are exact in the same way: halves of two floats, added.
"""

import contextlib
import copy

import deltawire.torch
import pytest
import torch
from models import Net, backward, batch, descend, fingerprint, wrapped
from ranks import results
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

STEPS = 4


def one_batch(model, rank, number):
    backward(model, rank, number)


def accumulated(model, rank, number):
    """Three batches to a step; only the last one's backward pass exchanges."""
    model.zero_grad()
    for part in range(3):
        x, y = batch(rank, 3 * number + part)
        with model.no_sync() if part < 2 else contextlib.nullcontext():
            (model(x) - y).square().mean().backward()


def accumulated_in_view(model, rank, number):
    """As a loop that keeps its gradients' memory: zeroed, not dropped."""
    model.zero_grad(set_to_none=False)
    x, y = batch(rank, number)
    (model(x) - y).square().mean().backward()


def other_layers_by_rank(model, rank, number):
    """The layer that is used now and then is used by one rank at a time."""
    model.module.calls = number + rank
    backward(model, rank, number)


def autocast(model, rank, number):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        backward(model, rank, number)


def recomputed(model, rank, number):
    """A backward pass within a backward pass, and a layer that is used twice."""
    x, y = batch(rank, number)
    model.zero_grad()
    if not hasattr(model.module, "whole"):
        model.module.whole = model.module.layers.forward
        layers = model.module.layers
        layers.forward = lambda x: checkpoint(layers[0], checkpoint(
            model.module.whole, x, use_reentrant=True), use_reentrant=True)  # fmt: skip
    (model(x.requires_grad_()) - y).square().mean().backward()


def never_used(model, rank, number):
    """The extra layer is in no graph."""
    model.module.calls = 1
    backward(model, rank, number)


def accumulated_later(model, rank, number):
    """Not in the first step, of which DDP itself learns a static graph."""
    (accumulated if number else one_batch)(model, rank, number)


VIEW, STATIC = {"gradient_as_bucket_view": True}, {"static_graph": True}
CASES = {
    "find_unused": (one_batch, {"find_unused_parameters": True}, True),
    "find_unused_by_rank": (other_layers_by_rank, {"find_unused_parameters": True}, True),
    "static_graph": (one_batch, STATIC, False),
    "view": (one_batch, VIEW, False),
    "view_kept": (accumulated_in_view, VIEW, False),
    "view_static": (one_batch, {**VIEW, **STATIC}, False),
    "no_sync": (accumulated, {}, False),
    "no_sync_view": (accumulated, VIEW, False),
    "autocast": (autocast, {}, False),
    "static, recomputed": (recomputed, STATIC, False),
    "static, never used": (never_used, STATIC, True),
    "static, no_sync": (accumulated_later, STATIC, False),
    "static, find_unused": (never_used, {**STATIC, "find_unused_parameters": True}, True),
    "no broadcasts": (one_batch, {"broadcast_buffers": False}, False),
    # of a newer torch
    "no first broadcast": (one_batch, {"init_sync": False}, False),
    "skip unused": (
        never_used,
        {"find_unused_parameters": True, "skip_all_reduce_unused_params": True},
        True,
    ),
    "caps of buckets": (one_batch, {"bucket_cap_mb_list": [0.02, 0.05]}, False),
    "batched copy": (one_batch, {"batched_grad_copy": True}, False),
}
KNOWN = DistributedDataParallel.__init__.__code__.co_varnames
CASES = {case: row for case, row in CASES.items() if row[1].keys() <= {*KNOWN}}


@pytest.fixture(scope="module")
def of_both():
    """What each rank found, by case: to start ranks costs more than most cases."""
    return results(compare_all, 2)


def compare_all(rank, world_size, report):
    return {case: compare(rank, *CASES[case]) for case in CASES}


def compare(rank, run, options, sometimes):
    make = DistributedDataParallel if "bucket_cap_mb_list" in options else wrapped
    plain, hooked = (make(Net(sometimes), **copy.deepcopy(options)) for _ in range(2))
    hook = deltawire.torch.register(hooked, "fp32")
    unused = 0
    for number in range(STEPS):
        for model in (plain, hooked):
            run(model, rank, number)
        for (name, ours), theirs in zip(hooked.named_parameters(), plain.parameters(), strict=True):
            assert (ours.grad is None) == (theirs.grad is None), f"step {number}, {name}"
            if ours.grad is None:
                unused += 1
                continue
            assert torch.equal(ours.grad, theirs.grad), f"step {number}, {name}"
        for model in (plain, hooked):
            descend(model)
    assert hook.last_error is None and hook.metrics()["steps"] == STEPS
    assert max(record["buckets"] for record in hook.step_records) > 1
    return fingerprint(hooked), fingerprint(plain), unused


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_plain_ddps(of_both, case):
    first, second = (found[case] for found in of_both)
    assert first == second, "the replicas differ"
    assert first[0] == first[1]
    if case == "find_unused":
        assert first[2] > 0, "every parameter was used: nothing was tested"
