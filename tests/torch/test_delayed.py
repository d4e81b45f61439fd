"""Exchanges that go on while the next local steps are taken, of all weights and of fragments: the
algorithm written out, checkpoints and failures on the way."""

import math
import os
import time

import deltawire
import deltawire.torch
import pytest
import torch
from deltawire.torch.local import state as local_state
from local_rounds import NESTEROV, WrittenOut, changed, flat_of, saved, train
from models import Net, backward, fingerprint
from ranks import AT_ONCE, attempted, results, started

STEPS = 4
ALL, THIRDS = [slice(0, 12)], [slice(0, 4), slice(4, 8), slice(8, 12)]


def make(spec="direct(fp32)", rate=0.05, **options):
    model = Net()
    inner = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    options = {"steps": STEPS, "delay": 1, **options}
    return model, inner, deltawire.torch.LocalSteps(model, inner, spec, **options)


def common(trainer):
    """The weights that all ranks have alike, in a number."""
    return deltawire.torch.local.outer.state_digest(flat_of(trainer)["reference"])


def as_written_out(rank, world_size, report, cases):
    """Twelve steps and a last, shorter round; compared after each step."""
    seen = []
    for outer, parts, delay, overlap, mixing in cases:
        overlaps = {"delay": delay, "overlap": overlap, "mixing": mixing}
        model, inner, trainer = make(outer=outer, fragments=len(parts), **overlaps)
        twin = Net()
        theirs = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
        by_hand = WrittenOut(twin, parts, outer, bool(delay), overlap, mixing)
        turns = [math.ceil((n + 1) * STEPS / len(parts)) for n in range(len(parts))]
        for step in range(14):
            train(trainer, model, rank, [step])
            backward(twin, rank, step)
            theirs.step()
            by_hand.stepped()
            if (done := step % STEPS + 1) in turns:
                by_hand.exchange(turns.index(done))
            assert fingerprint(model) == fingerprint(twin), f"{parts} after step {step}"
        local = fingerprint(model)
        assert (trainer.round, trainer.local_steps) == (3, 2)
        trainer.exchange()
        for fragment, turn in enumerate(turns):
            if turn != 2:  # that one has had its turn with the last step
                by_hand.exchange(fragment)
        by_hand.finish()
        assert fingerprint(model) == fingerprint(twin) != local
        records = [(r["fragment"], r["local_steps"], r["elements"]) for r in trainer.step_records]
        trainer.exchange()  # nothing is left
        assert (trainer.round, trainer.local_steps) == (4, 0)
        assert len(trainer.step_records) == len(records)
        trainer.close()
        seen.append((local, fingerprint(model), records))
    return seen


def test_delayed_rounds_and_fragments_are_as_written_out():
    cases = [(NESTEROV, ALL, 1, 0, None), (None, ALL, 1, 0, None)]
    cases += [(NESTEROV, THIRDS, 0, 0, None), (None, THIRDS, 1, 0, None)]
    values = results(as_written_out, 3, cases)
    elements = sum(p.numel() for p in Net().parameters())
    for seen in zip(*values, strict=True):
        assert len({end for _, end, _ in seen}) == 1, "the last exchange left ranks that differ"
        assert len({local for local, _, _ in seen}) == 3
    whole, _, thirds, _ = (records for _, _, records in values[0])
    assert whole == [(0, 4, elements)] * 3 + [(0, 2, elements)]
    assert [(fragment, steps) for fragment, steps, _ in thirds] == [
        *((0, 2), (1, 3), (2, 4), (0, 4), (1, 4), (2, 4), (0, 4), (1, 4), (2, 4)),
        *((0, 4), (1, 3), (2, 2)),
    ]
    assert {share for _, _, share in thirds} == {elements // 3}


def test_results_are_applied_after_their_steps_and_mixed_as_written_out():
    """Streaming DiLoCo: the overlap, which may be longer than the next turn is away, and mixing."""
    cases = [(NESTEROV, ALL, 0, 3, 0.5), (NESTEROV, THIRDS, 0, 1, 0.5), (None, THIRDS, 0, 2, None)]
    cases += [(NESTEROV, THIRDS, 0, 9, 0.25), (None, ALL, 1, 0, 0.75), (None, ALL, 0, 1, 0)]
    for seen in zip(*results(as_written_out, 3, cases), strict=True):
        assert len({end for _, end, _ in seen}) == 1, "the last exchange left ranks that differ"


def hidden(rank, world_size, report):
    """The local steps of the second round wait until the exchange of the first has ended: it does,
    though nobody calls the trainer."""
    link = deltawire.LinkShape(250_000)  # so that what a busy machine adds is little against it
    model, _, trainer = make(link=link)
    train(trainer, model, rank, range(STEPS))
    assert trainer.metrics()["hidden"] is None
    deadline = time.monotonic() + 60
    while not trainer.step_records and time.monotonic() < deadline:
        time.sleep(0.01)
    before = common(trainer)
    train(trainer, model, rank, range(STEPS, 2 * STEPS))
    metrics, after = trainer.metrics(), common(trainer)
    trainer.close()
    _, _, waiting = make(link=link, delay=0)
    waiting.exchange(always=True)
    others = waiting.metrics()
    waiting.close()
    return before != after, metrics, others


def test_an_exchange_goes_on_while_steps_are_taken():
    for applied, metrics, others in results(hidden, 2):
        assert applied, "what came was not applied at the end of the next round"
        print(metrics, others)
        assert metrics["under_way_ms"] == metrics["total_under_way_ms"] > 20
        assert metrics["hidden"] > 0.5 and metrics["waited_ms"] < metrics["under_way_ms"] / 2
        assert others["hidden"] < 0.5 and others["total_waited_ms"] > 0


def restored_on_the_way(rank, world_size, report, options):
    """Straight on, with a save after each step, and from one of these."""
    ends = []
    for saves_at in (None, 5, 6):
        model, inner, trainer = make(**options)
        for step in range(13):
            if step == saves_at:
                kept = saved(trainer.state_dict()), saved(inner.state_dict())
            elif saves_at is not None:
                trainer.state_dict()
            train(trainer, model, rank, [step])
        ends.append((fingerprint(model), common(trainer)))
        trainer.close()
        if saves_at is not None:
            model, inner, trainer = make(**options)
            state = torch.load(kept[0])
            trainer.load_state_dict(state)
            inner.load_state_dict(torch.load(kept[1]))
            train(trainer, model, rank, range(saves_at, 13))
            ends.append((fingerprint(model), common(trainer)))
            flat = local_state.flat_form(state, rank)
            under_way, progress = flat["under_way"], flat["progress"]
            short = dict(list(under_way["means"].items())[1:])
            (own,) = state["own"][f"rank {rank}"]
            lacks = {key: own[key] for key in own if key != "under_way"}
            refused = [
                attempted(lambda bad=bad, trainer=trainer: trainer.load_state_dict(bad))
                for bad in (
                    changed(state, rank, under_way={**under_way, "means": short}),
                    changed(state, rank, under_way={**under_way, "start": short}),
                    changed(state, rank, under_way={**under_way, "fragment": 9}),
                    changed(state, rank, under_way={**under_way, "steps": "4"}),
                    {**state, "own": {f"rank {rank}": (lacks,)}},
                    changed(state, rank, progress={**progress, "since": [1] * 7}),
                    changed(state, rank, progress={**progress, "next": -1}),
                    state if rank == 0 else changed(state, rank, under_way=None),
                )
            ]
            trainer.close()
    return ends, refused


@pytest.mark.parametrize(
    "options",
    [
        {"spec": "sbc:p=5%", "outer": "nesterov"},
        {"spec": "3lc", "fragments": 3},
        {"spec": "blockint:bits=4", "outer": "nesterov", "delay": 0, "overlap": 3, "mixing": 0.5},
    ],
)
def test_a_checkpoint_on_the_way_goes_on_bit_for_bit(options):
    values = results(restored_on_the_way, 2, options)
    for ends, refused in values:
        assert len(set(ends)) == 1, "saving changed something, or loading did"
        print(*refused, sep="\n")
        assert [kind for kind, _, _ in refused] == ["InvalidArgumentError"] * 7 + ["DeltawireError"]
    assert values[0][0][0][1] == values[1][0][0][1], "the common weights differ"


def failing(rank, world_size, report, tells):
    """Rank 1's second round is not finite; everybody hears of it in the third."""
    model, _, trainer = make("3lc")
    train(trainer, model, rank, range(2))
    trainer.exchange()
    train(trainer, model, rank, range(STEPS - 1))
    before = flat_of(trainer)
    if rank == 1:
        with torch.no_grad():
            next(model.parameters())[0, 0] = float("nan")
    trainer.stepped()
    deadline = time.monotonic() + 60
    while trainer.last_error is None and time.monotonic() < deadline:
        time.sleep(0.01)
    local, state = fingerprint(model), flat_of(trainer)
    assert state["under_way"] is None and state["progress"]["since"] == [STEPS]
    assert torch.equal(state["residuals"], before["residuals"])
    assert all(map(torch.equal, state["reference"].values(), before["reference"].values()))
    with pytest.raises(deltawire.DeltawireError) as caught:
        tells(trainer)
    assert trainer.closed and fingerprint(model) == local
    trainer.close()
    with pytest.raises(deltawire.DeltawireError, match="make a new one"):
        trainer.step()

    state["parameters"] = before["parameters"]
    model, _, again = make("3lc")
    again.load_state_dict(local_state.saved_form(state))
    again.exchange()
    again.close()
    return caught.value.code, caught.value.suspect, fingerprint(model)


@pytest.mark.parametrize(
    "tells", [deltawire.torch.LocalSteps.step, deltawire.torch.LocalSteps.close]
)
def test_a_failed_exchange_is_told_by_the_next_call(tells):
    values = results(failing, 2, tells)
    assert values[0] == values[1] and values[0][:2] == ("NotFinite", 1)


def closed_on_the_way(rank, world_size, report):
    """The last round has begun when the block ends."""
    model, _, trainer = make("3lc")
    with trainer:
        train(trainer, model, rank, range(STEPS))
        local = fingerprint(model)
        child = os.fork()
        if child == 0:
            os._exit(refused_code(trainer))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    return trainer.last_error, trainer.metrics()["steps"], fingerprint(model), local


def refused_code(trainer):
    """In a forked child, where an exchange of the parent's would never end."""
    try:
        trainer.close()
    except Exception as error:
        return 7 if getattr(error, "code", "") == "State" and "forked" in str(error) else 1
    return 0


def test_close_lets_the_last_exchange_end():
    (error, steps, end, local), second = results(closed_on_the_way, 2)
    assert (error, steps, end) == second[:3] == (None, 1, end)
    assert local != second[3] and end not in (local, second[3])


KEPT = []


def leaves_on_the_way(rank, world_size, report):
    """Rank 0 ends without close, and rank 1 does not arrive."""
    model, _, trainer = make("3lc")
    KEPT.append(trainer)
    train(trainer, model, rank, range(STEPS - rank))
    if rank == 1:
        time.sleep(600)


def test_at_exit_nothing_waits():
    with started(leaves_on_the_way, 2) as ranks:
        assert ranks.outcomes([0])[0].raised is None
        ranks.processes[0].join(AT_ONCE)
        assert ranks.processes[0].exitcode == 0


def bad_delays(rank, world_size, report):
    bad = [{"delay": 2}, {"delay": True}, {"spec": "sbc:p=5%", "mask_momentum": True}]
    bad += [{"overlap": 2}, {"delay": 0, "overlap": -1}, {"delay": 0, "mixing": 0.5}]
    bad += [{"mixing": 1}, {"mixing": -0.1}, {"mixing": True}]
    return [attempted(lambda options=options: make(**options)) for options in bad]


def test_delays_that_cant_be():
    for caught in results(bad_delays, 2):
        kinds, texts, _ = zip(*caught, strict=True)
        assert kinds == ("InvalidArgumentError",) * 9
        assert "delay=2" in texts[0] and "delay=True" in texts[1] and "mask_momentum" in texts[2]
        assert "one of them" in texts[3] and "overlap=-1" in texts[4] and "overlap=" in texts[5]
        assert all("mixing=" in text for text in texts[5:])
