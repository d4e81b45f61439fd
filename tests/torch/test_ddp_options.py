"""DDP's own options and ways to train: through the hook with fp32 they give the gradients that
plain DDP gives, and replicas that are bit-equal.

With two ranks both are exact in the same way: halves of two floats, added.
"""

import contextlib
import copy

import deltawire.torch
import pytest
import torch
from models import Net, backward, batch, fingerprint, wrapped
from ranks import results

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


VIEW = {"gradient_as_bucket_view": True}
CASES = {
    "find_unused": (one_batch, {"find_unused_parameters": True}, True),
    "find_unused_by_rank": (other_layers_by_rank, {"find_unused_parameters": True}, True),
    "static_graph": (one_batch, {"static_graph": True}, False),
    "view": (one_batch, VIEW, False),
    "view_kept": (accumulated_in_view, VIEW, False),
    "view_static": (one_batch, {**VIEW, "static_graph": True}, False),
    "no_sync": (accumulated, {}, False),
    "no_sync_view": (accumulated, VIEW, False),
}


@pytest.fixture(scope="module")
def of_both():
    """What each rank found, by case: to start ranks costs more than most cases."""
    return results(compare_all, 2)


def compare_all(rank, world_size, report):
    return {case: compare(rank, *CASES[case]) for case in CASES}


def compare(rank, run, options, sometimes):
    plain, hooked = (wrapped(Net(sometimes), **copy.deepcopy(options)) for _ in range(2))
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
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.05 * parameter.grad
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
