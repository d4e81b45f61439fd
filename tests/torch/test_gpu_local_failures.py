"""Failures in rounds of a model on a GPU: a typed error on every rank, in time."""

import time

import gpu
import pytest
import torch
from deltawire.errors import DeltawireError
from gpu import OnDevice, backward, results
from local_rounds import flat_of
from test_gpu_local import STEPS, Side, sgd

pytestmark = gpu.needs_gpu


def spoiled(rank, world_size, report, options):
    """Rank 1's weights are NaN in its second round, which 3LC can't carry."""
    ours = Side(OnDevice(), sgd, "3lc:s=1.75", timeout=20, **options)
    caught = None
    try:
        for step in range(3 * STEPS):
            backward(ours.model, rank, step)
            if rank == 1 and step == STEPS:
                next(ours.model.parameters()).grad.fill_(float("nan"))
            ours.trainer.step()
    except DeltawireError as error:
        caught = error
    state = flat_of(ours.trainer)  # those before the round, but for the own weights
    assert all(values.isfinite().all() for values in state["reference"].values())
    return caught.code, caught.suspect, ours.trainer.round, ours.trainer.closed


@pytest.mark.parametrize("options", [{}, {"fragments": 2, "overlap": 1}], ids=str)
def test_nan_is_the_same_error_on_every_rank(options):
    values = results(spoiled, 2, options)
    print(values)
    assert values[0] == values[1]
    assert values[0][:2] == ("NotFinite", 1) and values[0][3]


def endless(rank, world_size, report):
    ours = Side(OnDevice(), sgd, "3lc:s=1.75", timeout=60, overlap=1)

    def step(number):
        backward(ours.model, rank, number)
        ours.trainer.step()

    return gpu.until_another_ends(ours.trainer, report, step, first=2 * STEPS)


def test_a_killed_rank_is_named_at_once():
    gpu.kill_a_rank_of(endless)


def held_up(rank, world_size, report, outer):
    """Rank 0's GPU has other things to do than the local steps."""
    ours = Side(OnDevice(), sgd, "fp32", timeout=2.0, outer=outer)
    for step in range(STEPS):
        backward(ours.model, rank, step)
        ours.trainer.step()
    caught, began = None, time.monotonic()
    try:
        for step in range(STEPS):
            backward(ours.model, rank, step)
            if rank == 0 and step == STEPS - 1:
                for _ in range(6):
                    torch.cuda._sleep(2_000_000_000)  # about 1 s each
            ours.trainer.step()
    except DeltawireError as error:
        caught = error
    took = time.monotonic() - began
    ours.trainer.close()
    return caught.code, caught.suspect, str(caught), took


@gpu.needs_cuda
@pytest.mark.parametrize(
    ("outer", "late"),
    [(None, "a bucket of weight changes was not on the host"), ("nesterov", "was not done with")],
)
def test_a_gpu_that_takes_too_long_is_an_error_on_every_rank(outer, late):
    values = results(held_up, 2, outer)
    print(values)
    assert [suspect for _, suspect, *_ in values] == [0, 0]
    assert all(late in text for _, _, text, _ in values)
    assert values[0][0] == "Timeout"


def moved(rank, world_size, report):
    """The model leaves for the CPU."""
    ours = Side(OnDevice(), sgd, "3lc:s=1.75")
    ours.model.cpu()
    try:
        ours.trainer.exchange(always=True)
    except DeltawireError as error:
        return error.code, str(error)
    return None


@gpu.needs_cuda
def test_a_model_that_moves_is_an_error():
    for code, text in results(moved, 2):
        assert code == "State"
        assert "move the model first" in text
