"""Checkpoints of LocalSteps: amid a round, refused where they don't belong, after a failure."""

import deltawire
import deltawire.torch
import pytest
import torch
from deltawire.torch.local import state as local_state
from local_rounds import changed, flat_of, saved, train
from models import Net, fingerprint
from ranks import results
from refusals import raised

SPECS = ["sbc:p=5%", "3lc:s=1.5", "direct(fp32)"]


def make(spec, steps=3, seed=7):
    model = Net()
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return model, optimizer, deltawire.torch.LocalSteps(model, optimizer, steps=steps, reducer=spec)


def amid_a_round(rank, world_size, report):
    seen = {}
    for spec in SPECS:
        model, optimizer, trainer = make(spec)
        train(trainer, model, rank, range(8))
        state, momentum = trainer.state_dict(), optimizer.state_dict()
        momentum = torch.load(saved(momentum))
        state = torch.load(saved(state))
        train(trainer, model, rank, range(8, 15))
        straight = fingerprint(model)
        trainer.close()

        finals = []
        for residuals in (True, False):
            model, optimizer, trainer = make(spec)
            optimizer.load_state_dict(momentum)
            if residuals:
                trainer.load_state_dict(state)
            else:  # only what a checkpoint without deltawire has
                with torch.no_grad():
                    for name, parameter in model.named_parameters():
                        parameter.copy_(local_state.flat_form(state, rank)["parameters"][name])
            assert (trainer.round, trainer.local_steps) == ((2, 2) if residuals else (0, 0))
            train(trainer, model, rank, range(8, 15))
            finals.append(fingerprint(model))
            trainer.close()
        seen[spec] = straight, *finals
    return seen


def test_a_run_restored_amid_a_round_goes_on_bit_for_bit():
    values = results(amid_a_round, 2)
    for spec in SPECS:
        for value in values:
            straight, restored, without = value[spec]
            assert restored == straight != without, spec


class Unsaved:
    """A session without memory for a copy of its residuals."""

    def __init__(self, session):
        self._session = session

    def __getattr__(self, name):
        return getattr(self._session, name)

    def save(self):
        raise MemoryError("full")


def refused_states(rank, world_size, report):
    model, optimizer, trainer = make("sbc:p=5%")
    train(trainer, model, rank, range(4))
    early = trainer.state_dict()
    train(trainer, model, rank, range(4, 8))
    good = trainer.state_dict()
    weights, print_ = flat_of(trainer), fingerprint(model)
    first = next(iter(weights["parameters"]))
    reshaped = {**weights["parameters"], first: torch.zeros(3)}
    renamed = {"x" + name: tensor for name, tensor in weights["reference"].items()}
    other = {**weights["reference"], first: weights["reference"][first] + 1}
    own = [  # wrong on every rank
        changed(good, rank, rank=1 - rank),
        {**good, "world_size": 3},
        {**good, "spec": "gather(sbc:p=0.1)"},
        {**good, "version": 3},
        {"version": local_state.VERSION},
        changed(good, rank, parameters=reshaped),
        changed(good, rank, reference=renamed),
        changed(good, rank, residuals=weights["residuals"][:-3]),
    ]
    rank_1 = [  # wrong on rank 1 alone, or only where the ranks are compared
        changed(good, rank, residuals=torch.zeros(9, dtype=torch.uint8)),
        changed(good, rank, reference=other),
        early,  # last: its residuals must not stay
    ]
    caught = []
    for state in own + [good if rank == 0 else state for state in rank_1]:
        try:
            trainer.load_state_dict(state)
            caught.append(None)
        except deltawire.DeltawireError as error:
            caught.append((type(error).__name__, error.code, str(error)))
    session = trainer._session
    if rank == 1:
        trainer._session = Unsaved(session)
    with pytest.raises((MemoryError, deltawire.DeltawireError), match="full"):
        trainer.load_state_dict(good)
    trainer._session = session
    after = flat_of(trainer)
    assert (after["round"], after["local_steps"]) == (weights["round"], weights["local_steps"])
    assert torch.equal(after["residuals"], weights["residuals"]) and fingerprint(model) == print_
    for key in ("reference", "parameters"):
        assert all(torch.equal(after[key][n], weights[key][n]) for n in weights[key])
    train(trainer, model, rank, range(8, 9))  # nothing was harmed
    return caught, fingerprint(model), trainer.round


def test_states_that_dont_belong_here_are_refused_on_every_rank():
    values = results(refused_states, 2)
    assert values[0][1:] == values[1][1:] and values[0][2] == 3
    for rank, (caught, _, _) in enumerate(values):
        assert None not in caught, caught
        kinds, codes, texts = zip(*caught, strict=True)
        print(*texts, sep="\n")
        assert kinds[:7] == ("InvalidArgumentError",) * 7
        assert f"rank {1 - rank}" in texts[0] and "world_size 3" in texts[1]
        assert "p=0.1" in texts[2] and "version 3" in texts[3] and "lacks" in texts[4]
        assert "layers.0.0.weight" in texts[5] and "another model" in texts[6]
        assert codes[7] in ("Truncated", "Corrupt")
        assert codes[9:] == ("Mismatch", "Mismatch")
        assert "round 1" in texts[10] and "round 2" in texts[10]
    assert values[0][0][8][1] == "Aborted" and "rank 1 can't load" in values[0][0][8][2]
    assert values[1][0][8][1] in ("Truncated", "Corrupt", "UnsupportedVersion")


def fail_and_recover(rank, world_size, report, spec):
    """Rank 1 diverges; after the failure all go on from what they had before."""
    model, optimizer, trainer = make(spec)
    train(trainer, model, rank, range(5))
    kept, kept_state = flat_of(trainer), trainer.state_dict()
    if rank == 1:
        with torch.no_grad():
            model.layers[2][0].weight[3, 4] = float("nan")
    local = {n: p.detach().clone() for n, p in model.named_parameters()}
    error = raised(deltawire.DeltawireError, trainer.exchange)
    assert trainer.closed and trainer.last_error is not None
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.nan_to_num(), local[name].nan_to_num()), "not the local values"
    state = flat_of(trainer)
    assert (state["round"], state["local_steps"]) == (1, 2)
    assert torch.equal(state["residuals"], kept["residuals"]), "the residual has the failed round"
    for name, tensor in kept["reference"].items():
        assert torch.equal(state["reference"][name], tensor)
    for again in (trainer.step, trainer.exchange, lambda: trainer.load_state_dict(kept_state)):
        refused = raised(deltawire.DeltawireError, again, match="closed")
        assert refused.code == "State" and refused.suspect == 1

    model, optimizer, trainer = make(spec)
    state["parameters"] = kept["parameters"]
    trainer.load_state_dict(local_state.saved_form(state))
    assert trainer.local_steps == 2
    trainer.exchange()
    trainer.close()
    return error.code, error.suspect, str(error), fingerprint(model), trainer.round


def test_after_a_failed_round_nothing_is_lost():
    values = results(fail_and_recover, 3, "sbc:p=5%")
    assert [value[0] for value in values] == ["NotFinite"] * 3
    for _, suspect, text, print_, rounds in values:
        assert suspect == 1 and "layers.2.0.weight" in text
        assert print_ == values[0][3] and rounds == 2
