"""Checkpoints: residuals go out and come back, and only where they belong."""

import time

import deltawire
import deltawire.torch
import pytest
import torch
import torch.distributed as dist
from models import Net, fingerprint, train_step, train_steps, wrapped
from ranks import results

SPEC = "3lc:s=1.5"


def round_trip(rank, world_size, report):
    model = wrapped(Net())
    hook = deltawire.torch.register(model, SPEC)
    train_steps(model, rank, range(4))
    saved, parameters = (
        hook.state_dict(),
        {k: v.clone() for k, v in model.module.state_dict().items()},
    )
    for step in range(4, 7):  # saving disturbs nothing
        train_step(model, rank, step)
    straight = fingerprint(model)

    finals = []
    for state in (saved, None):
        module = Net()
        module.load_state_dict(parameters)
        model = wrapped(module)
        again = deltawire.torch.register(model, SPEC)
        if state is not None:
            again.load_state_dict(state)
            assert again.state_dict()["steps"] == saved["steps"] == 4
        train_steps(model, rank, range(4, 7))
        finals.append(fingerprint(model))
        again.close()
    (residuals,) = saved["residuals"][f"rank {rank}"]
    return straight, *finals, residuals.dtype, residuals.numel(), hook.last_error


def test_a_restored_run_goes_on_bit_for_bit():
    for straight, restored, without, dtype, count, error in results(round_trip, 2):
        assert error is None and dtype == torch.uint8 and count > 0
        assert restored == straight
        assert without != straight, "the residuals made no difference: nothing was tested"


def wrong_states(rank, world_size, report):
    model = wrapped(Net())
    hook = deltawire.torch.register(model, SPEC)
    train_step(model, rank, 0)
    good = hook.state_dict()
    name = f"rank {rank}"
    (residuals,) = good["residuals"][name]
    caught = []
    for change in (
        {"residuals": {f"rank {1 - rank}": (residuals,)}},
        {"world_size": 3},
        {"spec": "direct(fp32)"},
        {"version": 2},
        {"residuals": {name: (residuals[:-3],)}},
        {"residuals": {name: (torch.zeros(100, dtype=torch.uint8),)}},
        {"residuals": {name: (residuals.numpy(),)}},
        {"residuals": {name: (residuals.float(),)}},
        {"residuals": residuals},
        {"residuals": {name: residuals}},
        {"steps": -1},
        {"steps": 1.0},
        {"steps": True},
    ):
        try:
            hook.load_state_dict({**good, **change})
        except deltawire.DeltawireError as error:
            caught.append((type(error).__name__, str(error)))
    try:
        hook.load_state_dict({"version": 1})
    except ValueError as error:
        caught.append((type(error).__name__, str(error)))
    after = hook.state_dict()
    assert torch.equal(after.pop("residuals")[name][0], residuals)
    assert after == {key: value for key, value in good.items() if key != "residuals"}
    train_step(model, rank, 1)  # nothing was harmed
    hook.close()
    assert hook.state_dict()["residuals"][name]  # also after close
    return caught


def test_states_of_others_are_refused():
    for rank, caught in enumerate(results(wrong_states, 2)):
        kinds, texts = zip(*caught, strict=True)
        assert kinds == ("InvalidArgumentError",) * 4 + ("DeltawireError",) * 2 + (kinds[0],) * 8
        assert f"rank {1 - rank}" in texts[0] and "world_size 3" in texts[1]
        assert "saved_states" in texts[1]
        assert "direct(fp32)" in texts[2]
        assert "residuals are ndarray" in texts[6] and "residuals are torch.float32" in texts[7]
        assert "torch.uint8, not by rank" in texts[8] and f"'rank {rank}'" in texts[9]
        assert all("steps=" in text for text in texts[10:13])
        assert "lacks" in texts[13] and "residuals" in texts[13]


def restore_on_one(rank, world_size, report):
    model = wrapped(Net())
    hook = deltawire.torch.register(model, SPEC, timeout=60)
    train_step(model, rank, 0)
    saved = hook.state_dict()
    train_steps(model, rank, range(1, 4))
    dist.barrier()
    if rank == 1:
        hook.load_state_dict(saved)
    began = time.monotonic()
    with pytest.raises(deltawire.DeltawireError):
        train_step(model, rank, 4)
    return time.monotonic() - began, hook.last_error


def test_a_state_that_one_rank_alone_loads_is_noticed_at_once():
    for seconds, error in results(restore_on_one, 2):
        assert seconds < 30, "it took the timeout, not the step numbers"
        assert error.code == "Mismatch"
        assert "step 1" in str(error) and "step 4" in str(error)
        assert error.last_committed_step == 3
