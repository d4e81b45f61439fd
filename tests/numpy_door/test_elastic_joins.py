"""Processes that join an elastic session, for the first time or again."""

import os
import signal
import threading
import time

import deltawire
import numpy as np
import pytest
from elastic_steps import ELEMENTS, KILLED, STEPS, dies_when_a_view_is_agreed_on, steps_of
from member_door import members_at
from members import LIMIT, Process, members, session_of, settings
from rank_threads import in_threads


def freeze(say, rank, world_size, address) -> None:
    """Steps until it is excluded; then it joins again. The others wait for it at the end."""
    weights = np.zeros(ELEMENTS, np.float32)
    changed = settings(timeout=2.0, arrival_timeout=20.0, state=lambda: {"weights": weights})
    place = {"rank": rank, "world_size": world_size}
    while True:
        try:
            with deltawire.Session("3lc", **place, address=address, **changed) as session:
                if session.joined_state is not None:
                    weights[:] = session.joined_state["weights"]
                    say(("joined", session.steps))
                steps_of(say, session, 8, weights, lambda session: say(("begin", session.steps)))
                while session.world_size < world_size:
                    steps_of(say, session, session.steps + 1, weights)
                    time.sleep(0.02)  # the pipe holds so many
                begun = session.events[-1]["step"] if session.events else session.steps
                steps_of(say, session, begun + 10, weights)
            return
        except deltawire.DeltawireError as error:
            say(
                (
                    "error",
                    error.code,
                    str(error),
                    error.epoch,
                    isinstance(error, deltawire.ExcludedError),
                )
            )
            if error.code != "Excluded":
                return
            place = {}


def test_a_frozen_member_is_told_that_it_was_excluded_and_joins_again() -> None:
    with members(freeze, 3) as (processes, _):
        victim = processes[2]
        while victim.until("begin")[1] < 4:
            pass
        victim.kill(signal.SIGSTOP)
        while processes[0].until("step")[2] == 0:  # epoch
            pass
        victim.kill(signal.SIGCONT)
        _, code, text, epoch, is_typed = victim.until("error")
        assert code == "Excluded" and is_typed and epoch == 1, text
        assert "epoch 1" in text
        assert victim.until("joined")[1] >= 4
        said = [each.rest() for each in processes]
    last = [[row for row in found if row[0] == "step"][-1] for found in said]
    assert last[0] == last[1] == last[2]
    assert last[0][3] == [0, 1, 3]


def grow(say, rank, world_size, address, spec, elements) -> None:
    """Steps until a process has joined, and ten more."""
    weights = np.full(ELEMENTS, 7.0, np.float32)
    other = np.arange(elements, dtype=np.int64)
    state = {"weights": weights, "other": other}
    with session_of(rank, world_size, address, spec, state=lambda: state) as session:
        if session.joined_state is not None:
            weights[:] = session.joined_state["weights"]
            assert (session.joined_state["other"] == other).all()
            assert session.joined_state["other"].dtype == np.int64
            say(("joined", session.steps, session.epoch))
        else:
            steps_of(say, session, 4, weights)
            while not any(each["joined"] for each in session.events):
                steps_of(say, session, session.steps + 1, weights)
                time.sleep(0.02)  # the pipe holds so many
        joined = [each["step"] for each in session.events if each["joined"]]
        begun = joined[0] if joined else session.steps
        steps_of(say, session, begun + 10, weights)
        say(("events", session.events))


@pytest.mark.parametrize(
    "spec,elements", [("3lc", 3_000_000), ("gather(topk:k=5%)", 0), ("powersgd:rank=2", 1)]
)
def test_a_process_that_joins_takes_part_in_the_next_step(spec: str, elements: int) -> None:
    with members(grow, 2, spec, elements) as (processes, address):
        while processes[0].until("step")[1] < 3:
            pass
        # The first address is nobody's; the second member's door names the first one.
        joiner = Process(grow, None, None, f"127.0.0.1:1,{address}", spec, elements)
        processes.append(joiner)
        begun, epoch = joiner.until("joined")[1:]
        said = [each.rest() for each in processes]
    rows = [{row[1]: row for row in found if row[0] == "step"} for found in said]
    assert min(rows[2]) == begun and epoch == 1
    assert max(rows[2]) == begun + 9
    for step in range(begun, begun + 10):
        assert rows[0][step] == rows[1][step] == rows[2][step]
    (event,) = said[0][-1][1]
    assert event["joined"] == [2] and event["step"] == begun and event["gone"] == []


def early(say, rank, world_size, address) -> None:
    """Rank 0 lets a process join before it begins the first step, in which rank 1 waits for it."""
    weights = np.zeros(ELEMENTS, np.float32)
    with session_of(rank, world_size, address, state=lambda: {"weights": weights}) as session:
        end = time.monotonic() + LIMIT
        while rank == 0 and not session._session.has_joiners and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.5 if rank == 0 else 0.0)  # rank 1 is in its step
        steps_of(say, session, STEPS, weights)


def test_a_process_joins_while_the_first_step_has_begun_on_one_rank_alone() -> None:
    with members(early, 2) as (processes, address):
        processes.append(Process(early, None, None, address))
        said = [each.rest() for each in processes]
    assert said[0] == said[1] == said[2]
    assert [row[3] for row in said[0]] == STEPS * [[0, 1, 2]]


def test_any_member_names_the_one_that_takes_joiners_in() -> None:
    with members(grow, 3, "3lc", 10) as (processes, address):
        processes[0].until("step")
        _, other = members_at(address)[2]
        joiner = Process(grow, None, None, other, "3lc", 10)
        processes.append(joiner)
        assert joiner.until("joined")
        for each in processes:
            each.rest()


def burst(say, rank, world_size, address) -> None:
    """Two go on, though three come at once, and die before they are connected."""
    weights = np.zeros(ELEMENTS, np.float32)
    if rank is None:
        dies_when_a_view_is_agreed_on()
    # Who waited for the dead would wait too long.
    with session_of(rank, world_size, address, connect_timeout=2 * LIMIT) as session:
        steps_of(say, session, KILLED, weights)
        time.sleep(3.0)  # meanwhile they come
        steps_of(say, session, STEPS, weights)


def test_joiners_that_die_take_nobody_s_quorum() -> None:
    with members(burst, 2) as (processes, address):
        processes[0].until("step")
        processes += [Process(burst, None, None, address) for _ in range(3)]
        said = [each.rest() for each in processes]
    assert said[0] == said[1][1:] and [row[3] for row in said[1]] == STEPS * [[0, 1]]
    assert said[0][-1][2] > 1 and said[2:] == [[], [], []]


def floor(say, rank, world_size, address) -> None:
    """Rank 0 dies in the fourth step; three are needed."""
    weights = np.zeros(ELEMENTS, np.float32)
    changed = {"at_least": 3, "state": lambda: {"weights": weights}}
    with session_of(rank, world_size, address, **changed) as session:
        say(("doors", [each["address"] for each in session.members()]))
        if session.joined_state is not None:
            weights[:] = session.joined_state["weights"]

        def before(session) -> None:
            if rank == 0 and session.steps == KILLED:
                os.kill(os.getpid(), signal.SIGKILL)

        steps_of(say, session, STEPS, weights, before)


def test_below_the_floor_they_wait_for_others() -> None:
    with members(floor, 3) as (processes, _):
        doors = processes[2].until("doors")[1]
        assert processes[0].rest()[-1][1] == KILLED - 1  # it is dead
        # Rank 1 hosts the meeting; rank 2's door says so.
        joiner = Process(floor, None, None, f"{doors[0]},{doors[2]}")
        processes.append(joiner)
        rows = [
            {row[1]: row[2:] for row in each.rest() if row[0] == "step"} for each in processes[1:]
        ]
    for step in range(KILLED, STEPS):
        assert rows[0][step] == rows[1][step] == rows[2][step]
        assert rows[0][step][:2] == (1, [1, 2, 3])


def try_to_join(say, address, changed) -> None:
    spec = changed.pop("spec", "3lc")
    try:
        with deltawire.Session(spec, address=address, **settings(**changed)):
            say(("in",))
    except deltawire.DeltawireError as error:
        say((error.code, str(error)))


def test_a_process_with_other_shapes_leaves_alone() -> None:
    over = threading.Event()

    def live(rank: int, address: str) -> None:
        with session_of(rank, 2, address, "fp32") as session:
            while not over.is_set():
                session.all_reduce({"x": np.ones(300, np.float32), "y": np.ones(300, np.float32)})

    def join(**shapes: int) -> None:
        with session_of(None, None, addresses[0], "fp32") as session:
            session.all_reduce({name: np.ones(size, np.float32) for name, size in shapes.items()})

    addresses: list[str] = []

    def come(rank: int, address: str) -> None:
        if rank < 2:
            live(rank, address)
            return
        addresses.append(address)
        try:
            join(x=300, y=300)
            others = {"x": 300, "y": 400}, {"x": 300}, {"x": 300, "y": 300, "z": 1}, {"y": 300}
            for shapes in others:
                with pytest.raises(deltawire.DeltawireError) as refused:
                    join(**shapes)
                texts.append(refused.value.code + " " + str(refused.value))
            join(x=300, y=300)
        finally:
            over.set()

    texts: list[str] = []
    in_threads(come, 3, LIMIT)
    assert all(each.startswith("Mismatch ") for each in texts), texts
    apart = ("1 is 'y' 300", "'y' 400"), ("1 is 'y' 300", "none"), ("2 is none", "'z' 1")
    for text, (theirs, own) in zip(texts, (*apart, ("0 is 'x' 300", "'y' 300")), strict=True):
        assert f" tensor {theirs} in step " in text and f", and {own} in this process; " in text


def test_who_does_not_fit_does_not_join() -> None:
    with members(grow, 2, "3lc", 10) as (processes, address):
        processes[0].until("step")
        code, text = Process(try_to_join, address, {"spec": "int8"}).next()
        assert code == "Mismatch" and "session has direct(3lc" in text, text
        assert "this process direct(int8)" in text and "min_elements" not in text, text
        other = {"token": "another secret of the tests", "connect_timeout": 3.0}
        assert Process(try_to_join, address, other).next()[0] == "Unauthorized"
        late = {"connect_timeout": 1.0}
        assert Process(try_to_join, "127.0.0.1:1", late).next()[0] == "Timeout"
        joiner = Process(grow, None, None, address, "3lc", 10)
        processes.append(joiner)
        said = [each.rest() for each in processes]
    assert len(said[0][-1][1]) == 1  # event
