"""LocalSteps with "auto": rounds and sparsity change on all ranks alike, and only they."""

import logging

import deltawire
import deltawire.torch
import pytest
import torch
from deltawire.torch.local import tuner
from deltawire.torch.local.tuner import Tuner
from local_rounds import changed, flat_of
from models import fingerprint
from ranks import results

STEPS = 2
# What each window says, after a first round that none counts. After one round each: training waits
# too long, so that fewer elements are sent; the loss rises, so that it goes back; then longer
# rounds; these are kept. After four rounds: still longer ones, which are kept, too.
TOLD = {"step": 0.01, "losses": 9, "loss": 2.0, "variance": 0.01}
SAID = [
    {**TOLD, "exchange": 1.0},
    {**TOLD, "exchange": 1.0, "loss": 3.0},
    {**TOLD, "exchange": 1.0},
    {**TOLD, "exchange": 0.003},
    {**TOLD, "exchange": 1.0},
    {**TOLD, "exchange": 0.006},
]
RULES = "step<2: sbc:p=10%, step<3: sbc:p=3%, rest sbc:p=10%"


def steps_of(number):
    return STEPS if number < 4 else 2 * STEPS if number < 9 else 4 * STEPS


ROUNDS = 10
ALL_STEPS = sum(map(steps_of, range(ROUNDS)))


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 50), torch.nn.Tanh(), torch.nn.Linear(50, 50, bias=False)
    )


def trained(trainer, model, inner, rank, steps):
    for step in steps:
        generator = torch.Generator().manual_seed(1000 * rank + step)
        x, y = torch.randn(8, 64, generator=generator), torch.randn(8, 50, generator=generator)
        inner.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        if trainer._tuner is not None:
            trainer.observe(loss)
        trainer.step()


def trainer_of(spec, steps=STEPS, **options):
    model = network()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainer = deltawire.torch.LocalSteps(
        model, inner, spec, steps=steps, min_elements=1, fragments=1, **options
    )
    return trainer, model, inner


def as_scripted(self, history):
    """In the place of a rank's measurements; with the number of losses that it was given."""
    waiting = history.metrics()["waiting_steps"]
    assert len(self._losses) == self.plan.rounds * self.plan.round_steps, len(self._losses)
    assert waiting is not None and waiting > 0
    self.windows = getattr(self, "windows", -1) + 1
    return {**SAID[self.windows], "waiting": waiting}


def scripted(rank, world_size, report):
    Tuner._report = as_scripted
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("deltawire").addHandler(handler)
    logging.getLogger("deltawire").setLevel(logging.INFO)
    trainer, model, inner = trainer_of("auto")
    assert trainer.steps == STEPS and trainer.metrics()["auto_waited"] is None
    first = str(trainer.explain())
    trained(trainer, model, inner, rank, range(2 * STEPS))
    between = trainer.metrics(), str(trainer.explain()), trainer.state_dict()
    trained(trainer, model, inner, rank, range(2 * STEPS, ALL_STEPS))
    metrics, end = trainer.metrics(), fingerprint(model)
    other, _, _ = trainer_of("auto")
    other.load_state_dict(between[2])
    resumed = other.metrics(), other.steps
    damaged = []
    for auto in ("{}", flat_of(other)["auto"].replace('"block": 1', '"block": 2'), None):
        with pytest.raises(deltawire.InvalidArgumentError, match="damaged") as caught:
            other.load_state_dict(changed(between[2], rank, auto=auto))
        damaged.append(str(caught.value))
        other, _, _ = trainer_of("auto")
    by_hand, twin, theirs = trainer_of(RULES, steps_of)
    trained(by_hand, twin, theirs, rank, range(ALL_STEPS))
    same = end == fingerprint(twin)
    return same, first, between[:2], metrics, resumed, lines


def test_ranks_change_together_as_if_it_had_been_written_down():
    for rank, found in enumerate(results(scripted, 2)):
        same, first, (between, explained), metrics, resumed, lines = found
        assert same, "not the weights of the same rules and steps"
        assert first.startswith("auto: sbc:p=10% in rounds of 2 steps: begins with")
        assert explained.startswith("auto: sbc:p=3% in rounds of 2 steps: training waited 98")
        assert "sbc:p=0.03" in explained and "from step" not in explained
        assert between["auto_share"] == 0.03 and between["auto_steps"] == STEPS
        assert 0.97 < between["auto_waited"] < 0.99 and between["auto_changes"] == 1
        assert metrics["auto_share"] == 0.1 and metrics["auto_steps"] == 4 * STEPS
        assert metrics["auto_changes"] == 4
        assert (resumed[0]["auto_share"], resumed[1]) == (0.03, STEPS)
        told = [line for line in lines if line.startswith("auto: ")]
        if rank == 0:
            assert "auto: begins with sbc:p=10% in rounds of 2 steps; every 4 rounds" in told[0]
            assert "the loss rose from 2 to 3" in told[2]
        else:
            assert not told


def on_a_thin_link(rank, world_size, report):
    trainer, model, inner = trainer_of("auto", link=deltawire.LinkShape(5000, burst_bytes=1))
    trained(trainer, model, inner, rank, range(2 * STEPS))
    found = trainer.metrics()
    trainer.exchange()
    trainer.close()
    return found["auto_share"], found["auto_waited"], fingerprint(model)


def test_measures_that_training_waits_for_a_thin_link():
    """Each message takes 50 ms or more, the steps of a round hardly one."""
    first, second = results(on_a_thin_link, 2)
    assert first == second and first[0] == 0.03 and first[1] > 0.1


def refused(rank, world_size, report):
    texts = []
    for spec, options in [
        ("auto", {"steps": steps_of}),
        ("auto", {"steps": 0}),
        ("auto", {"overlap": 1}),
        ("auto:wait=0", {}),
        ("auto:wait=100%", {}),
        ("auto:wait=1.2.3", {}),
        ("auto:p=1%", {}),
        (f"auto:wait={5 + rank}%", {}),
    ]:
        with pytest.raises(deltawire.DeltawireError) as caught:
            trainer_of(spec, **options)
        texts.append(str(caught.value))
    trainer, (auto, _, _) = trainer_of("sbc:p=1%")[0], trainer_of("auto:wait=5%")
    for action in (
        lambda: trainer.observe(1.0),
        lambda: setattr(auto, "steps", 3),
        lambda: auto.observe(torch.zeros(2)),
        lambda: auto.observe("low"),
    ):
        with pytest.raises(deltawire.DeltawireError) as caught:
            action()
        texts.append(str(caught.value))
    return texts


def test_refusals():
    words = (
        "shortest",
        "steps=0",
        "overlap=",
        "wait=0'",
        "wait=100%'",
        "wait=1.2.3'",
        "wait alone",
        "wait=",
    )
    also = ('only "auto"', "chooses the steps", "2 elements", "not 'low'")
    for texts in results(refused, 2):
        for text, part in zip(texts, (*words, *also), strict=True):
            assert part in text, text


def test_every_share_has_blocks_ahead():
    """Of the numbers of steps, in which a share is chosen by going on."""
    made = Tuner(2, 0.1, None)
    with pytest.raises(deltawire.InvalidArgumentError, match="damaged"):
        made.check_state("[" * 9999)
    for level in (3, 0, 3, 0, 2, 1):
        assert tuner._BLOCKS[made._next_block(level)] == level
        made._block = made._next_block(level)
        assert made.number(7) // tuner._BLOCK == made._block
    made._block = len(tuner._BLOCKS) - 2
    assert made._next_block(None) is None
