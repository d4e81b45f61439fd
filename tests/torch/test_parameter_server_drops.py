"""Training that goes on without a worker, and says so."""

import logging
import signal

import deltawire.torch
from models import Net, backward, fingerprint
from ranks import AT_ONCE, started
from served import SOON, sgd
from watched import logged

STEPS, STOP_AT, VICTIM = 40, 8, 3


def train(rank, world_size, report, stops, timeout, options):
    """One server. A worker in `stops` says so, and stops before that step until a signal comes."""
    said = logged(logging.WARNING)
    model = Net()
    server = deltawire.torch.ParameterServer(
        model, sgd(model), timeout=timeout, on_worker_loss="drop", **options
    )
    losses = []
    try:
        if server.serves:
            server.serve()
        else:
            while server.steps < STEPS and not server.ended:
                if server.steps == stops.get(rank):
                    report("stops")
                    signal.raise_signal(signal.SIGSTOP)
                losses.append(backward(model, rank, 0))  # the same data in each step
                server.step()
        server.close()
        error = None
    except deltawire.DeltawireError as caught:
        error = caught.code, caught.suspect, str(caught)
        server.close()
    metrics = server.metrics()
    return {
        "error": error,
        "steps": metrics["step"],
        "dropped": metrics.get("dropped"),
        "said": said,
        "losses": losses,
        "model": fingerprint(model),
    }


def values_of(outcomes):
    assert all(outcome.raised is None for outcome in outcomes.values()), outcomes
    return {rank: outcome.value for rank, outcome in sorted(outcomes.items())}


def check_those_left(values):
    (gone,) = values[0]["dropped"]
    print(values[0]["said"])
    assert (gone["rank"], gone["step"]) == (VICTIM, STOP_AT) and gone["time"] > 1e9
    (said,) = values[0]["said"]
    assert said.startswith("rank 0: worker rank 3 is dropped in step 8, and what waited there")
    assert "2 of 3 workers go on: " + gone["why"] in said
    for rank in (0, 1, 2):
        assert values[rank]["error"] is None and values[rank]["steps"] == STEPS, values[rank]
    assert values[1]["model"] == values[2]["model"]
    losses = values[1]["losses"]
    print(f"loss {losses[0]:.3f}, {losses[STOP_AT]:.3f} at the loss, {losses[-1]:.3f} at the end")
    assert losses[-1] < losses[STOP_AT] < losses[0]


def test_training_goes_on_without_a_killed_worker():
    with started(train, 4, {VICTIM: STOP_AT}, SOON, {}) as ranks:
        assert ranks.hear(VICTIM) == "stops"
        ranks.signal(VICTIM, signal.SIGKILL)
        outcomes = ranks.outcomes([0, 1, 2])
    assert max(outcome.after for outcome in outcomes.values()) < AT_ONCE
    values = values_of(outcomes)
    check_those_left(values)
    assert values[0]["dropped"][0]["code"] == "PeerLost"


def test_a_frozen_worker_is_dropped_at_the_deadline_and_finds_out():
    with started(train, 4, {VICTIM: STOP_AT}, 8.0, {}) as ranks:
        assert ranks.hear(VICTIM) == "stops"
        values = values_of(ranks.outcomes([0, 1, 2]))
        ranks.signal(VICTIM, signal.SIGCONT)
        thawed = values_of(ranks.outcomes([VICTIM]))[VICTIM]
    check_those_left(values)
    assert values[0]["dropped"][0]["code"] == "Timeout"
    code, suspect, text = thawed["error"]
    print(text)
    assert suspect == VICTIM and "rank 0 has dropped rank 3, this one" in text


def test_too_few_workers_end_the_run():
    with started(train, 4, {VICTIM: STOP_AT, 2: 16}, SOON, {"min_workers": 2}) as ranks:
        for victim in (VICTIM, 2):
            assert ranks.hear(victim) == "stops"
            ranks.signal(victim, signal.SIGKILL)
        values = values_of(ranks.outcomes([0, 1]))
    assert [gone["rank"] for gone in values[0]["dropped"]] == [VICTIM, 2]
    for value in values.values():
        code, suspect, text = value["error"]
        print(text)
        assert suspect == 2 and "1 of 3 workers are left, below min_workers=2" in text
