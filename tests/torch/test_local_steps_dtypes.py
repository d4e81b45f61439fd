"""LocalSteps with parameters of 16 bits: what is too small for them adds up in float32."""

import deltawire
import deltawire.torch
import pytest
import torch
from local_rounds import flat_of, mean_of
from models import fingerprint
from ranks import results
from test_dtypes import EACH, Mixed
from test_dtypes import train as descend

ULP = 2.0**-7  # of bfloat16, from 1 to 2
ROUNDS = 4


def make(model, spec="direct(fp32)", **options):
    inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    options = {"steps": 2, "min_elements": 0, **options}
    return inner, deltawire.torch.LocalSteps(model, inner, spec, **options)


def workers(rank, world_size, report):
    return {
        worker.__name__: worker(rank)
        for worker in (as_written_out, add_up, mix, keep_on_the_way, mask, outgrow)
    }


@pytest.fixture(scope="module")
def seen():
    ranks = results(workers, 2)
    return lambda worker: [rank[worker.__name__] for rank in ranks]


def as_written_out(rank):
    """A model of each dtype, exchanged without loss, against the same rounds by hand."""
    model, twin = Mixed(EACH), Mixed(EACH)
    _, trainer = make(model)
    common = [p.detach().clone().float() for p in twin.parameters()]
    equal = []
    for step in range(2 * ROUNDS):
        descend(model, rank, step)
        trainer.stepped()
        descend(twin, rank, step)
        if step % 2:
            with torch.no_grad():
                for weight, parameter in zip(common, twin.parameters(), strict=True):
                    weight += mean_of(parameter.float() - weight.to(parameter.dtype).float())
                    parameter.copy_(weight)
        equal.append(fingerprint(model) == fingerprint(twin))
    reference = flat_of(trainer)["reference"].values()
    equal.append(all(map(torch.equal, reference, common)))
    raw = trainer.step_records[0]["raw_bytes"]
    trainer.close()
    return all(equal), fingerprint(model), raw == 2 * sum(p.numel() for p in model.parameters()) * 2


def test_rounds_are_those_written_out(seen):
    ranks = seen(as_written_out)
    assert len({print_ for _, print_, _ in ranks}) == 1
    assert all(equal and raw for equal, _, raw in ranks), ranks


class Scale(torch.nn.Module):
    def __init__(self, value, dtype):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((8,), value, dtype=dtype))


def nudge(model, trainer, rank, by):
    """One rank's local step."""
    with torch.no_grad():
        model.weight += by * (rank == 0)
    trainer.stepped()


def add_up(rank):
    """One of two ranks moves by the least that there is: the mean, half of it, is too small for
    bfloat16 in one round. With delay=1 the rank's own step stays on top of it."""
    found = []
    for options in ({}, {"delay": 1}, {"outer": lambda p: torch.optim.SGD(p, lr=1.0)}):
        model = Scale(1.0, torch.bfloat16)
        _, trainer = make(model, steps=1, **options)
        for _ in range(ROUNDS):
            nudge(model, trainer, rank, ULP)
        trainer.exchange()
        common = flat_of(trainer)["reference"]["weight"]
        trainer.close()
        found.append((common.unique().tolist(), model.weight.unique().tolist()))
    return found


def test_what_is_too_small_for_16_bits_adds_up(seen):
    for found in seen(add_up):
        assert found == [([1 + ROUNDS / 2 * ULP], [1 + ROUNDS / 2 * ULP])] * 3


def mix(rank):
    """bfloat16 and float32, whose common weights are the same: rounding is no change."""
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        model = Scale(1.0, dtype)
        _, trainer = make(model, steps=2, overlap=1, mixing=0.5)
        for _ in range(8):
            nudge(model, trainer, rank, ULP)
        found.append(flat_of(trainer)["reference"]["weight"].tolist())
        trainer.close()
    return found


def test_own_shares_of_16_bits_are_not_rounded_away(seen):
    for of_bfloat16, of_float32 in seen(mix):
        assert of_bfloat16 == of_float32 != [1.0] * 8


def keep_on_the_way(rank):
    """A state of each dtype, with an exchange under way, goes on bit for bit."""
    ends = []
    options = {"delay": 1, "outer": "nesterov", "fragments": 2}
    model = Mixed(EACH)
    inner, trainer = make(model, "topk:k=30%", **options)
    for step in range(12):
        if step == 5:
            kept = trainer.state_dict()
        descend(model, rank, step)
        trainer.stepped()
    ends.append(fingerprint(model))
    trainer.close()
    model = Mixed(EACH)
    inner, trainer = make(model, "topk:k=30%", **options)
    trainer.load_state_dict(kept)
    for step in range(5, 12):
        descend(model, rank, step)
        trainer.stepped()
    ends.append(fingerprint(model))
    trainer.exchange()
    ends.append(fingerprint(model))
    with pytest.raises(ValueError, match="parameters have .*bfloat16.* the model as torch.float32"):
        other = make(Mixed((torch.float32,) * 3), "topk:k=30%", **options)[1]
        other.load_state_dict(kept)
    other.close()
    trainer.close()
    return ends


def test_a_state_of_16_bits_goes_on_bit_for_bit(seen):
    (straight, restored, one), (_, _, other) = seen(keep_on_the_way)
    assert straight == restored and one == other


def mask(rank):
    model = Mixed((torch.bfloat16,))
    inner, trainer = make(model, "sbc:p=10%")
    for _ in range(2):
        inner.zero_grad()
        model(torch.ones(2, 64)).float().square().mean().backward()
        trainer.step()
    weight = model.layers[0].weight
    momentum = inner.state[weight]["momentum_buffer"]
    moved = flat_of(trainer)["reference"]["layers.0.weight"] != Mixed(EACH).layers[0].weight
    trainer.close()
    return momentum.dtype, float((momentum == 0).float().mean()), bool(moved.any())


def test_momentum_of_16_bits_is_masked(seen):
    for dtype, masked, moved in seen(mask):
        assert dtype == torch.bfloat16 and 0.05 < masked < 0.3 and moved


def outgrow(rank):
    model = Scale(60_000.0, torch.float16)
    _, trainer = make(model, steps=1, outer=lambda p: torch.optim.SGD(p, lr=4.0))
    with pytest.raises(deltawire.DeltawireError) as caught:
        nudge(model, trainer, 0, 3_000.0)
    return caught.value.code, str(caught.value)


def test_a_weight_that_float16_can_not_hold_is_named(seen):
    for code, text in seen(outgrow):
        assert code == "NotFinite" and "'weight'" in text and "torch.float16" in text
