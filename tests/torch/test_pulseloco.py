"""PULSELoCo by its name, in rounds of local steps: its algorithm written out, bit for bit."""

import copy

import deltawire.torch
import numpy as np
import pytest
import torch
from local_rounds import NESTEROV, Waiting, changed, flat_of, follow, network, trained
from models import fingerprint
from ranks import results
from refusals import raised

STEPS, ROUNDS = 3, 4


def rounded(x: np.ndarray) -> np.ndarray:
    """The bits of the nearest bfloat16, to even: what a forward pass in bfloat16 sees."""
    bits = x.view(np.uint32)
    return (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16


class Seen:
    """What bfloat16 weights would show is sent."""

    def __init__(self):
        self.shares = []

    def __call__(self, summed, weights):
        seen = rounded(weights + summed) != rounded(weights)
        self.shares.append(seen.mean())
        return np.where(seen, summed, np.float32(0))


def trainer_of(model, rate=1e-4, spec="pulseloco", **options):
    inner = torch.optim.AdamW(model.parameters(), lr=rate)
    return inner, deltawire.torch.LocalSteps(
        model, inner, spec, steps=STEPS, outer=NESTEROV, **options
    )


def rounds(rank, world_size, report, spec):
    model, twin = network(50), network(50)
    inner, trainer = trainer_of(model, spec=spec)
    theirs = torch.optim.AdamW(twin.parameters(), lr=1e-4)
    seen = Seen()
    by_hand = Waiting(twin, seen, outer=NESTEROV)
    follow(trainer, by_hand, model, twin, [inner], [theirs], rank, STEPS, ROUNDS)
    momentum = inner.state[model[0].weight]["exp_avg"]
    assert momentum.count_nonzero() == momentum.numel(), "what was sent has no momentum any more"
    bits = 32 / trainer.metrics()["total_ratio"]
    trainer.close()
    return float(np.mean(seen.shares)), bits, fingerprint(model)


@pytest.mark.parametrize(("spec", "messages"), [("pulseloco", 1), ("direct(pulseloco)", 1.5)])
def test_it_is_its_equations_bit_for_bit(spec, messages):
    """A part of each change is sent, in float32 and at most 2 bits an element for the positions;
    AdamW's moments are not touched."""
    values = results(rounds, 2, spec)
    assert len({weights for _, _, weights in values}) == 1
    for share, bits, _ in values:
        assert 0.05 < share < 0.6
        assert 32 * share < bits < messages * (32 * share + 2)


def trained_on(trainer, model, inner, rank, steps):
    for step in steps:
        trained(model, inner, rank, step)
        trainer.step()
    trainer.exchange()
    return fingerprint(model)


def restored(rank, world_size, report):
    """Weights after 3 rounds at once, and with a state between; and what loading refuses."""
    model = network(50)
    inner, trainer = trainer_of(model, overlap=2)
    for step in range(STEPS + 1):
        trained(model, inner, rank, step)
        trainer.step()
    saved = trainer.state_dict()  # with an exchange under way
    moments = copy.deepcopy(inner.state_dict())
    held = flat_of(trainer)["held"]
    whole = trained_on(trainer, model, inner, rank, range(STEPS + 1, 3 * STEPS))
    trainer.close()
    model = network(50)
    inner, trainer = trainer_of(model, overlap=2)
    trainer.load_state_dict(saved)
    inner.load_state_dict(moments)
    again = trained_on(trainer, model, inner, rank, range(STEPS + 1, 3 * STEPS))
    refused = []
    for state in (
        changed(saved, rank, without=("held",)),
        changed(saved, rank, held={**held, "0.weight": torch.zeros(3)}),
    ):
        refused.append(str(raised(deltawire.DeltawireError, trainer.load_state_dict, state)))
        inner, trainer = trainer_of(model, overlap=2)
    with pytest.raises(deltawire.DeltawireError) as caught:
        trainer_of(model, spec="threshold:t=1e-12,positions=auto")[1].load_state_dict(saved)
    waiting = sum(float(each.abs().sum()) for each in held.values())
    return whole == again, waiting, [*refused, str(caught.value)]


def test_what_is_held_back_is_in_the_state():
    for same, waiting, refused in results(restored, 2):
        assert same and waiting > 0
        for text, part in zip(refused, ("held", "held", "pulseloco"), strict=True):
            assert part in text, refused


def resized(rank, world_size, report, folder):
    model = network(50)
    inner, trainer = trainer_of(model)
    if world_size == 2:
        for step in range(STEPS):
            trained(model, inner, rank, step)
            trainer.step()
        torch.save(trainer.state_dict(), f"{folder}/{rank}")
    else:
        trainer.load_state_dict([torch.load(f"{folder}/{saved}") for saved in range(2)])
    return flat_of(trainer)["held"]["0.weight"].numpy()


def test_another_number_of_ranks_holds_back_the_mean(tmp_path):
    first, second = results(resized, 2, tmp_path)
    (held,) = results(resized, 1, tmp_path)
    assert np.array_equal(held, (first + second) / 2) and held.any()


def other_recipes(rank, world_size, report):
    """What is held back must be equal on all ranks; and a bfloat16 model holds back in its own."""
    texts = []
    with pytest.raises(deltawire.DeltawireError) as caught:
        trainer_of(network(50), spec="pulseloco" if rank else "threshold:t=1e-12,positions=auto")
    texts.append(str(caught.value))
    for spec in ("pulseloco:t=1", "dims>=2: pulseloco, rest fp32"):
        caught = raised(deltawire.InvalidArgumentError, trainer_of, network(50), spec=spec)
        texts.append(str(caught))
    return texts


def test_refusals():
    for mismatch, *others in results(other_recipes, 2):
        assert "holds_back" in mismatch
        assert all("deltawire.torch.LocalSteps" in text for text in others), others
