"""torch.distributed.checkpoint of LocalSteps: what all ranks have, for as many ranks or others."""

import functools

import deltawire.torch
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from models import Net, fingerprint, steps_by
from ranks import results

CASES = {
    "at once": {"reducer": "direct(fp32)"},
    "on the way": {"reducer": "direct(fp32)", "delay": 1, "fragments": 2},
    "residuals": {"reducer": "topk:k=20%"},
}
SAVED = 7  # local steps, amid a round
FLUSHES = 12  # exchanges of next to nothing, after which no residual is left
NEXT_TO_NOTHING = 2.0**-22  # a change of zeros has no part in an exchange


def make(options, dtype=torch.float32):
    model = Net().to(dtype)
    inner = torch.optim.SGD(model.parameters(), lr=0.05)
    options = {"steps": 5, "outer": None, "mask_momentum": False, **options}
    return model, deltawire.torch.LocalSteps(model, inner, **options)


def train(model, trainer, rank, steps):
    steps_by(trainer, model, rank, steps)


def flushed(model, trainer):
    """The weights, once all that waits has been exchanged."""
    for number in range(FLUSHES):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += NEXT_TO_NOTHING * (-1) ** number
        trainer.exchange(always=True)
    trainer.close()
    return torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()


def load_from(folder, trainer):
    dcp.load({"trainer": trainer}, checkpoint_id=folder)


def load_all_from(folder, trainer):
    trainer.load_state_dict(deltawire.torch.saved_states(folder, "trainer"))


def save_and_go_on(rank, world_size, report, folder):
    ends = {}
    for case, options in CASES.items():
        model, trainer = make(options)
        train(model, trainer, rank, range(SAVED))
        dcp.save({"trainer": trainer}, checkpoint_id=f"{folder}/{case}")
        dcp.async_save({"trainer": trainer}, checkpoint_id=f"{folder}/{case} async").result()
        saved = trainer.state_dict()
        train(model, trainer, rank, range(SAVED, 12))
        straight = [fingerprint(model)]
        trainer.close()
        for load in (
            functools.partial(load_from, f"{folder}/{case}"),
            functools.partial(load_from, f"{folder}/{case} async"),
            functools.partial(load_all_from, f"{folder}/{case}"),
            lambda trainer, saved=saved: trainer.load_state_dict(saved),
        ):
            model, trainer = make(options)
            load(trainer)
            assert trainer.local_steps == SAVED - 5 and trainer.round == 1
            train(model, trainer, rank, range(SAVED, 12))
            straight.append(fingerprint(model))
            trainer.close()
        model, trainer = make(options)
        trainer.load_state_dict(saved)
        ends[case] = straight, flushed(model, trainer)
    return ends


def other_reference(state):
    (common,) = state["common"]
    reference = {name: tensor + 1 for name, tensor in common["reference"].items()}
    return {**state, "common": ({**common, "reference": reference},)}


def load_by_others(rank, world_size, report, folder):
    ends = {}
    for case, options in CASES.items():
        model, trainer = make(options)
        states = deltawire.torch.saved_states(f"{folder}/{case}", "trainer")
        with pytest.raises(ValueError, match="saved_states|not of"):
            trainer.load_state_dict({**states[0], "world_size": 2})
        moved = [states[0], other_reference(states[1])]
        for torn, says in (
            ([states[0], {**states[1], "round": 9}], "round is 9"),
            (moved, "the states differ: one is of round 1"),
            ([{"version": 2}, states[1]], "isn't what state_dict"),
        ):
            with pytest.raises(ValueError, match=says):
                trainer.load_state_dict(torn)
        trainer.load_state_dict(states)
        ends[case] = flushed(model, trainer)
    return ends


def test_a_checkpoint_of_all_ranks(tmp_path):
    ranks = results(save_and_go_on, 2, str(tmp_path))
    for case in CASES:
        for straight, _ in (rank[case] for rank in ranks):
            assert len(straight) == 5 and len(set(straight)) == 1, case
    for world_size in (1, 3):
        for others in results(load_by_others, world_size, str(tmp_path)):
            for case, weights in others.items():
                due = ranks[0][case][1]
                gap = np.abs(weights - due).max()
                assert gap < 2e-6, f"{case}: {world_size} ranks make something else of it, {gap}"
