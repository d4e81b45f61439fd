"""What register(revert=) says of a step that fails holds for the whole model: a loop that obeys it
loses no gradient and counts none twice."""

import os
import time

import deltawire.torch
import pytest
import torch
import torch.distributed as dist
from deltawire.torch.core.checkpoint import kept_of
from ranks import AT_ONCE, results
from torch.nn.parallel import DistributedDataParallel

SHAPES = {"weight": (100, 50), "bias": (50,), "other": (60, 60), "plain": (300,)}
SPEC = "direct(step>=9: fp32, weight: 3lc, other: gcomp, rest fp32)"


class Given(torch.nn.Module):
    """Whose gradients are what it is called with."""

    def __init__(self):
        super().__init__()
        for name, shape in SHAPES.items():
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(shape)))

    def forward(self, gradients):
        return sum((getattr(self, name) * gradients[name]).sum() for name in SHAPES)


def gradients_of(rank, step):
    torch.manual_seed(100 * rank + step)
    return {name: torch.randn(shape) for name, shape in SHAPES.items()}


def registered(options):
    model = DistributedDataParallel(Given(), bucket_cap_mb=0.001)  # a bucket for each tensor
    hook = deltawire.torch.register(model, SPEC, **options)
    return model, hook


def obey_the_rule(rank, world_size, report, options, staged):
    os.environ["DELTAWIRE_FORCE_STAGING"] = "on" if staged else "off"
    given = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    came_out = {name: torch.zeros(shape) for name, shape in SHAPES.items()}

    def step(model, gradients):
        model.zero_grad()
        model(gradients).backward()
        for name in SHAPES:
            came_out[name] += getattr(model.module, name).grad

    model, hook = registered(options)
    for number in range(3):
        gradients = gradients_of(rank, number)
        for name in SHAPES:
            given[name] += gradients[name]
        if number < 2:  # DDP makes its buckets anew after the first
            step(model, gradients)
    before = hook.state_dict()
    if rank == 1:
        hook._session.abort("a fault")
    model.zero_grad()
    with pytest.raises(RuntimeError, match="a fault"):
        model(gradients).backward()
    state = hook.state_dict()
    hook.close()

    model, hook = registered(options)
    hook.load_state_dict(state)
    if options.get("revert") != "fold":
        assert torch.equal(kept_of(before, rank, "residuals"), kept_of(state, rank, "residuals"))
        step(model, gradients)
    for wrong in ("9", -1, 1.5):
        with pytest.raises(deltawire.InvalidArgumentError, match="step="):
            hook.go_to_step(wrong)
    hook.go_to_step(9)
    # What waits would not leave with zeros.
    step(model, {name: torch.full(shape, 1e-30) for name, shape in SHAPES.items()})
    hook.close()
    return [{name: sums[name].numpy() for name in SHAPES} for sums in (given, came_out)]


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("options", [{}, {"revert": "fold"}])
def test_a_step_that_fails_is_given_once_by_one_rule(options, staged):
    (first, came_out), (second, other) = results(obey_the_rule, 2, options, staged)
    for name in SHAPES:
        mean = (first[name] + second[name]) / 2
        assert abs(came_out[name] - mean).max() < 1e-5, name
        assert (came_out[name] == other[name]).all(), name


def cut_short(rank, world_size, report):
    """A user's exception on both ranks, when no bucket is in flight."""
    model = DistributedDataParallel(Given(), bucket_cap_mb=0.001)
    hook = deltawire.torch.register(model, "3lc")
    for number in range(2):
        model(gradients_of(rank, number)).backward()
    before = hook.state_dict()

    def fail(_):
        end = time.monotonic() + AT_ONCE
        while time.monotonic() < end:
            try:
                hook._session.explain([], 0)
                break
            except deltawire.DeltawireError:  # a bucket is in flight
                time.sleep(0.001)
        dist.barrier()
        raise ZeroDivisionError("a bug")

    model.module.weight.register_hook(fail)
    with pytest.raises(ZeroDivisionError):
        model(gradients_of(rank, 2)).backward()
    dist.barrier()
    if rank == 0:  # the other finds it out in its next pass
        assert_saved(hook.state_dict(), before, rank)
    dist.barrier()
    with pytest.raises(deltawire.DeltawireError, match="middle of step 2.*register a new"):
        model(gradients_of(rank, 2))
    assert_saved(hook.state_dict(), before, rank)
    hook.close()


def assert_saved(state, before, rank):
    assert state["steps"] == before["steps"] == 2
    assert torch.equal(kept_of(before, rank, "residuals"), kept_of(state, rank, "residuals"))


def test_a_backward_pass_that_is_cut_short_leaves_the_steps_before_it():
    results(cut_short, 2)
