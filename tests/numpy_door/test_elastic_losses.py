"""Members of an elastic session that are killed, leave, or can't hear the others: who goes on."""

import os
import signal
import threading
import time

import deltawire
import numpy as np
import pytest
from elastic_steps import (
    ELEMENTS,
    KILLED,
    STEPS,
    dies_when_a_view_is_agreed_on,
    digest,
    gradient,
    steps_of,
)
from members import LIMIT, SECRET, members, session_of
from rank_threads import in_threads


def lose(say, rank, world_size, address, spec, victims, changed) -> None:
    """Six steps, in the fourth of which the victims die."""
    weights = np.zeros(ELEMENTS, np.float32)

    def before(session) -> None:
        if session.steps == KILLED:
            say(("state", session.save()["residuals"]))
            if rank in victims:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        with session_of(rank, world_size, address, spec, **changed) as session:
            steps_of(say, session, STEPS, weights, before)
            say(("events", session.events, session.metrics()))
    except deltawire.DeltawireError as error:
        say(("error", error.code, str(error), error.epoch))


def in_reference(spec: str, states: list[bytes], survivors: list[int]) -> list[str]:
    """The means' digests of a session of the survivors alone that begins with their residuals."""
    digests: list[str] = []

    def run(rank: int, address: str) -> None:
        with deltawire.Session(
            spec, rank=rank, world_size=len(survivors), address=address, token=SECRET
        ) as session:
            given = [each if k in survivors else b"" for k, each in enumerate(states)]
            session._session.load_resized(
                [np.frombuffer(bytearray(each), np.uint8) for each in given],
                [("mean", [ELEMENTS])],
                (rank, len(survivors)),
                survivors,
            )
            session._steps = KILLED
            for step in range(KILLED, STEPS):
                mean = gradient(step, survivors[rank])
                session.all_reduce({"mean": mean})
                if rank == 0:
                    digests.append(digest(mean))

    in_threads(run, len(survivors), LIMIT)
    return digests


@pytest.mark.parametrize(
    "spec,victims",
    [
        ("3lc", [0]),
        ("3lc", [2, 3]),
        ("sbc:p=5%", [1, 3]),
        ("gather(3lc)", [0]),
        ("ring(int8)", [2]),
        ("powersgd:rank=2", [1]),
        ("hierarchical:group=2(3lc)", [0]),
        ("fp32", [0]),
    ],
)
def test_survivors_go_on_with_their_residuals(spec: str, victims: list[int]) -> None:
    survivors = [rank for rank in range(4) if rank not in victims]
    with members(lose, 4, spec, victims, {}) as (processes, _):
        said = [each.rest() for each in processes]
    states = [next(each[1] for each in found if each[0] == "state") for found in said]
    rows = [[each[1:] for each in said[rank] if each[0] == "step"] for rank in survivors]
    assert len(rows[0]) == STEPS and all(each == rows[0] for each in rows), "replicas differ"
    assert [row[1] for row in rows[0]] == [0, 0, 0, 1, 1, 1]  # epochs
    assert all(row[2] == survivors for row in rows[0][KILLED:])
    assert [row[3] for row in rows[0][KILLED:]] == in_reference(spec, states, survivors)
    for rank in survivors:
        (event,), metrics = said[rank][-1][1:]
        assert [each["rank"] for each in event["gone"]] == victims
        assert all("ended" in each["why"] for each in event["gone"])
        assert (event["epoch"], event["step"], event["joined"]) == (1, KILLED, [])
        assert metrics["recoveries"] == 1 and metrics["world_size"] == len(survivors)
        assert event["seconds"] < 10
        kept, lost = event["residual_kept"], event["residual_lost"]
        assert (kept > 0) == (spec not in ("fp32", "powersgd:rank=2")) and metrics[
            "residual_lost"
        ] == lost
        assert lost == pytest.approx(kept * (len(victims) / len(survivors)) ** 0.5)


@pytest.mark.parametrize("at_least", [None, 2])
def test_half_without_the_lowest_is_no_quorum(at_least: int | None) -> None:
    changed = {"connect_timeout": 3.0, "arrival_timeout": 3.0, "at_least": at_least}
    with members(lose, 4, "3lc", [0, 1], changed) as (processes, _):
        said = [each.rest() for each in processes]
    for found in said[2:]:
        if at_least is None:
            assert found[-1][:2] == ("error", "NoQuorum"), found[-1]
            assert "member 0: its process has ended" in found[-1][2] and "epoch 0" in found[-1][2]
            assert found[-1][3] == 0
        else:
            assert [each[1:] for each in found if each[0] == "step"] == [
                each[1:] for each in said[2] if each[0] == "step"
            ]
            assert len(found[-1][1]) == 1


def test_the_last_one_goes_on_alone() -> None:
    with members(lose, 2, "3lc", [1], {}) as (processes, _):
        assert len([each for each in processes[0].rest() if each[0] == "step"]) == STEPS


def die_in_the_meeting(say, rank, world_size, address, first, second) -> None:
    """`first` dies in a step, `second` when it has agreed on the members without it."""
    if rank == second:
        dies_when_a_view_is_agreed_on(after=1)
    lose(say, rank, world_size, address, "3lc", [first], {})


@pytest.mark.parametrize("second", [0, 3])  # 0 is the host
def test_a_death_while_the_others_meet(second: int) -> None:
    survivors = [rank for rank in range(5) if rank not in (4, second)]
    with members(die_in_the_meeting, 5, 4, second) as (processes, _):
        said = [each.rest() for each in processes]
    rows = [[each[1:] for each in said[rank] if each[0] == "step"] for rank in survivors]
    assert len(rows[0]) == STEPS and all(each == rows[0] for each in rows)
    assert rows[0][KILLED][1] > 1  # a view was given up
    assert rows[0][-1][2] == survivors


def part(say, rank, world_size, address, leavers, error) -> None:
    """The leavers leave before the fourth step: with the error, or by will if it is None."""
    weights = np.zeros(ELEMENTS, np.float32)
    with session_of(rank, world_size, address) as session:
        steps_of(say, session, KILLED, weights)
        if rank in leavers:
            if error is not None:
                raise error
            session.leave()
            return
        steps_of(say, session, STEPS, weights)
        say(("events", session.events))


def test_who_leaves_by_will_is_missed_by_no_quorum() -> None:
    with members(part, 4, [0, 1], None) as (processes, _):
        said = [each.rest() for each in processes]
    for rank in (2, 3):
        assert len([each for each in said[rank] if each[0] == "step"]) == STEPS
        whys = {gone["id"]: gone["why"] for each in said[rank][-1][1] for gone in each["gone"]}
        assert whys == {0: "it left", 1: "it left"}


def end(say, rank, world_size, address, in_step) -> None:
    """Rank 1 gets SIGTERM after the third step, or while it waits for the others in the fourth."""
    weights = np.zeros(ELEMENTS, np.float32)
    with session_of(rank, world_size, address) as session:
        steps_of(say, session, KILLED, weights)
        if rank == 1:
            after = threading.Timer(0.5 if in_step else 0, os.kill, (os.getpid(), signal.SIGTERM))
            after.start()
            while not in_step:
                time.sleep(0.1)
        elif in_step:
            time.sleep(1.5)
        steps_of(say, session, STEPS, weights)
        say(("events", session.events))


@pytest.mark.parametrize(
    ("in_step", "why"), [(False, "it left"), (True, "rank 1 gave up: interrupted")]
)
def test_sigterm_lets_a_member_leave(in_step: bool, why: str) -> None:
    with members(end, 3, in_step) as (processes, _):
        said = [each.rest() for each in processes]
        processes[1].process.join(LIMIT)
        assert processes[1].process.exitcode == 128 + signal.SIGTERM
    for rank in (0, 2):
        assert len([each for each in said[rank] if each[0] == "step"]) == STEPS
        (event,) = said[rank][-1][1]
        assert [(gone["id"], gone["why"]) for gone in event["gone"]] == [(1, why)]


def test_an_exception_is_a_reason_to_leave() -> None:
    with members(part, 3, [1], ValueError("the data ended")) as (processes, _):
        said = [each.rest() for each in processes]
    for rank in (0, 2):
        (event,) = said[rank][-1][1]
        assert "the data ended" in event["gone"][0]["why"]
