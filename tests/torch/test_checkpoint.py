"""torch.distributed.checkpoint: all ranks' residuals, for as many ranks or others."""

import sys

import deltawire
import deltawire.torch
import pytest
import torch
import torch.distributed.checkpoint as dcp
from deltawire.torch.core.checkpoint import in_order_of_ranks, kept_by
from models import Net, fingerprint, train_step, train_steps, wrapped
from ranks import results
from refusals import raised

SPEC = "3lc:s=1.5"
OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7)
FOLDERS = ("saved", "saved_async")


def registered():
    model = wrapped(Net())
    return model, deltawire.torch.register(model, SPEC)


def save_and_go_on(rank, world_size, report, folder):
    model, hook = registered()
    train_steps(model, rank, range(3))
    state = {"model": model.module, "hook": hook}
    dcp.save(state, checkpoint_id=f"{folder}/saved")
    dcp.async_save(state, checkpoint_id=f"{folder}/saved_async").result()
    train_steps(model, rank, range(3, 5))
    return fingerprint(model)


def load_and_go_on(rank, world_size, report, folder):
    finals = []
    for name in FOLDERS:
        model, hook = registered()
        dcp.load({"model": model.module, "hook": hook}, checkpoint_id=f"{folder}/{name}")
        train_steps(model, rank, range(3, 5))
        finals.append(fingerprint(model))
        hook.close()
    return finals


def refusal(load):
    """What torch's load says; None where it can't: PyTorch 2.6 sends a rank's exception with its
    code to the others, and Python 3.13 refuses to pickle that."""
    if OLD and sys.version_info >= (3, 13):
        return None
    return str(raised((ValueError, dcp.CheckpointException), load))


def load_by_others(rank, world_size, report, folder):
    """Goes on with what was saved, and without."""
    finals = []
    for with_states in (True, False):
        model, hook = registered()
        dcp.load({"model": model.module}, checkpoint_id=f"{folder}/saved")
        if with_states:
            text = refusal(
                lambda hook=hook: dcp.load({"hook": hook}, checkpoint_id=f"{folder}/saved")
            )
            states = deltawire.torch.saved_states(f"{folder}/saved")
            hook.load_state_dict(states)
            assert hook.state_dict()["steps"] == 3
            assert hook.state_dict()["world_size"] == world_size
            with pytest.raises(ValueError, match="no state of a hook under 'other'; it has hook, "):
                deltawire.torch.saved_states(f"{folder}/saved", "other")
        train_steps(model, rank, range(3, 5))
        assert hook.last_error is None
        finals.append(fingerprint(model))
        hook.close()
    return text, *finals


def test_a_checkpoint_of_all_ranks(tmp_path):
    straight = results(save_and_go_on, 2, str(tmp_path))
    assert results(load_and_go_on, 2, str(tmp_path)) == [[end] * len(FOLDERS) for end in straight]
    ends = results(load_by_others, 3, str(tmp_path))
    assert len({resized for _, resized, _ in ends}) == 1
    for text, resized, without in ends:
        assert text is None or "rank 2" in text
        assert resized != without, "the residuals made no difference: nothing was tested"


def state_of(rank, **changes):
    residuals = torch.zeros(1, dtype=torch.uint8)
    state = {"version": 1, "spec": "direct(3lc)", "world_size": 2, "steps": 5}
    return {**state, "residuals": kept_by(rank, residuals), **changes}


def test_states_are_put_in_order():
    states = [state_of(1), state_of(0)]
    assert in_order_of_ranks(states) == states[::-1]


@pytest.mark.parametrize(
    ("states", "says"),
    [
        ([], "rank .none., saved by 0"),
        ([state_of(0)], "rank 0, saved by 2"),
        ([state_of(0), state_of(1), state_of(2)], "rank 0, 1, 2, saved by 2"),
        ([state_of(1), state_of(2)], "rank 1, 2"),
        ([state_of(0), state_of(0)], "two states are of rank 0"),
        ([state_of(0), state_of(1, steps=6)], "steps is 6 in that of rank 1, elsewhere 5"),
        ([state_of(0), state_of(1, round=6)], "round is 6"),
        ([state_of(0), "text"], "isn't what state_dict"),
        ([state_of(0), state_of(1, residuals={})], "by rank"),
        ([state_of(0), state_of(1, residuals={"rank one": (1,)})], "'rank one'"),
        ([state_of(0), state_of(1, residuals={"rank 1": (1, 2)})], "'rank 1': tuple"),
    ],
)
def test_states_that_arent_those_of_all_ranks(states, says):
    with pytest.raises(deltawire.InvalidArgumentError, match=says):
        in_order_of_ranks(states)


# AllRanks: one state of what every rank has not sent, where rank 0 alone writes.


def test_what_is_no_hook_is_named():
    with pytest.raises(deltawire.InvalidArgumentError, match="that register returned, not Net"):
        deltawire.torch.AllRanks(Net())


def interrupted(rank, world_size, report, folder):
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "3lc")
    train_steps(model, rank, range(3))
    state = deltawire.torch.AllRanks(hook).state_dict()
    if rank == 0:
        torch.save({"hook": state, "model": model.module.state_dict()}, f"{folder}/checkpoint")
    train_step(model, rank, 3)
    hook.close()
    uninterrupted = fingerprint(model)

    saved = torch.load(f"{folder}/checkpoint")
    again = Net()
    again.load_state_dict(saved["model"])
    hook = deltawire.torch.register(model := wrapped(again), "3lc")
    with pytest.raises(deltawire.InvalidArgumentError, match="not of all ranks"):
        deltawire.torch.AllRanks(hook).load_state_dict(hook.state_dict())
    deltawire.torch.AllRanks(hook).load_state_dict(saved["hook"])
    train_step(model, rank, 3)
    hook.close()
    return uninterrupted, fingerprint(model)


def test_what_rank_0_wrote_is_of_all_ranks(tmp_path):
    for uninterrupted, went_on in results(interrupted, 2, tmp_path):
        assert went_on == uninterrupted
