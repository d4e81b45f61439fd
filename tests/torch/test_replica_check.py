"""Replicas that something else than the exchange has changed, and gradients that were to be
exchanged and were not: named, not passed over."""

import logging

import deltawire
import deltawire.torch
import pytest
import torch
from models import Net, backward, fingerprint, train_step, train_steps, wrapped
from ranks import results
from sharded import Uneven, cut, mesh_of, needs_fsdp2
from sharded import train_step as train_sharded
from torch.nn.parallel import DistributedDataParallel
from watched import logged

EVERY = 4


def registered(model, spec="3lc", every=EVERY):
    return deltawire.torch.register(model, spec, compare_every=every, timeout=30)


def until_it_fails(model, rank, hook, first=1):
    """(steps that counted, code, text) of the error within twice the distance; None without one."""
    try:
        train_steps(model, rank, range(first, first + 2 * EVERY))
    except deltawire.DeltawireError as error:
        return hook.metrics()["steps"], error.code, str(error)
    finally:
        hook.close()
    return None


def drift(rank, world_size, report):
    """Ways in which plain DDP lets replicas drift, each for one step."""

    def backward_of_the_module(model):
        train_step(model.module, rank, 0)

    def turned_off_until_backward(model):
        x, y = torch.ones(4, 64), torch.ones(4, 64) * rank
        model.require_backward_grad_sync = False
        loss = (model(x) - y).square().mean()
        model.require_backward_grad_sync = True
        loss.backward()
        step_of(model)

    def another_backward(model):
        x, y = torch.ones(4, 64), torch.ones(4, 64) * rank
        loss = (model(x) - y).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        step_of(model)

    def a_write(model):
        with torch.no_grad():
            model.module.layers[3][0].bias[5] += rank * 1e-7

    def step_of(model):
        torch.optim.SGD(model.parameters(), lr=0.05).step()
        model.zero_grad()

    found = {}
    for way in (backward_of_the_module, turned_off_until_backward, another_backward, a_write):
        model = wrapped(Net())
        hook = registered(model)
        train_step(model, rank, 0)
        way(model)
        found[way.__name__] = until_it_fails(model, rank, hook)
    model = wrapped(Net())
    hook = registered(model, every=None)
    a_write(model)
    return found, until_it_fails(model, rank, hook, 0)


def test_a_drift_ends_training_at_the_next_comparison_and_names_a_parameter():
    for found, unasked in results(drift, 2):
        for way, (steps, code, text) in found.items():
            assert steps <= EVERY and code == "Mismatch" and "\n" not in text, (way, text)
            assert "'layers.0.0.weight' is the first" in text or way == "a_write", (way, text)
        assert "'layers.3.0.bias' is the first" in found["a_write"][2]
        assert unasked is None, "compare_every=None"


def train_on_equal_replicas(rank, world_size, report):
    """With a comparison in each step: parameters that no rank uses, frozen ones, 16 bits."""
    ends = []
    for every in (1, None):
        model = wrapped(Net(dtype=torch.bfloat16), find_unused_parameters=True)
        hook = registered(model, every=every)
        model.module.layers[0][0].bias.requires_grad_(False)
        train_steps(model, rank, range(3))
        ends.append(fingerprint(model))
        hook.close()
    return ends


def test_a_comparison_changes_nothing():
    for compared, plain in results(train_on_equal_replicas, 2):
        assert compared == plain


def convert(rank, world_size, report, find_unused):
    model = wrapped(Net(), find_unused_parameters=find_unused)
    hook = registered(model)
    train_step(model, rank, 0)
    if find_unused:  # other buckets are exchanged all the same
        model.module.layers[2].double()
        model.module.layers[2].float()
    else:
        model.half()
        model.float()
    before = fingerprint(model)
    (steps, code, text) = until_it_fails(model, rank, hook)
    return steps, code, text, fingerprint(model) == before


@pytest.mark.parametrize("find_unused", [False, True])
def test_a_model_converted_and_back_is_named(find_unused):
    for steps, code, text, as_before in results(convert, 2, find_unused):
        assert code == "State" and "was converted" in text and "new Distributed" in text
        if find_unused:
            assert steps <= EVERY and "'layers.2.0." in text
        else:
            assert steps == 1 and as_before, "no step was made with a rank's own gradients"


def warned(rank, world_size, report):
    """A second backward pass is warned of once; what exchanges nothing by right is not."""
    told = logged(logging.WARNING)
    model = DistributedDataParallel(Net(), static_graph=True)  # whose first step comes last
    hook = registered(model)
    train_steps(model, rank, range(2))
    hook.close()
    model = wrapped(Net())
    hook = registered(model)
    with model.no_sync():
        backward(model, rank, 0)
    train_step(model, rank, 0)
    model(torch.ones(2, 64))  # a forward pass alone
    with pytest.raises(ZeroDivisionError):
        model(torch.ones(2, 64))
        raise ZeroDivisionError
    x = torch.ones(2, 64, requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    model.zero_grad()
    (model(x).sum() + slope.square().sum()).backward()
    quiet = list(told)
    loss = model(torch.ones(2, 64)).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    loud = told[len(quiet) :]
    hook.close()
    return quiet, loud


def test_a_backward_pass_that_exchanges_nothing_is_warned_of():
    for rank, (quiet, loud) in enumerate(results(warned, 2)):
        assert quiet == []
        (text,) = loud
        assert f"rank {rank}: a backward pass exchanged nothing" in text


def drift_of_rows(rank, world_size, report):
    model = cut(Uneven(), mesh_of(2, 1))
    hook = deltawire.torch.register(model, "fp32", compare_every=EVERY)
    train_sharded(model, rank, 0)
    with torch.no_grad():
        model.odd.weight.to_local()[2, 3] += rank
    with pytest.raises(deltawire.DeltawireError) as caught:
        for step in range(1, 2 * EVERY):
            train_sharded(model, rank, step)
    hook.close()
    return caught.value.code, str(caught.value), hook.metrics()["steps"]


@needs_fsdp2
def test_rows_that_drift_are_named():
    for code, text, steps in results(drift_of_rows, 2):
        assert code == "Mismatch" and "'odd.weight' is the first" in text and steps == EVERY
