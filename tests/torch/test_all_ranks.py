"""AllRanks: one state of what every rank has not sent, where rank 0 alone writes."""

import deltawire.torch
import pytest
import torch
from models import Net, fingerprint, train_step, wrapped
from ranks import results


def test_what_is_no_hook_is_named():
    with pytest.raises(deltawire.InvalidArgumentError, match="that register returned, not Net"):
        deltawire.torch.AllRanks(Net())


def interrupted(rank, world_size, report, folder):
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "3lc")
    for number in range(3):
        train_step(model, rank, number)
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
