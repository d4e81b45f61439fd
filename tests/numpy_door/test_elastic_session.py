"""Elastic sessions: real processes that are killed, frozen, leave and join."""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import deltawire
import numpy as np
import pytest
from deltawire import _core
from deltawire.elastic import membership
from deltawire.elastic.calls import Caller
from deltawire.elastic.membership import Membership
from members import LIMIT, SECRET, Process, members, settings
from ports import kept_port

ROOT = Path(__file__).resolve().parents[2]
ELEMENTS = 5000
KILLED = 3  # the step in which members are lost
STEPS = 6


def gradient(step: int, member: int) -> np.ndarray:
    draw = np.random.default_rng([step, member])
    return draw.standard_normal(ELEMENTS).astype(np.float32)


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def steps_of(say, session, last: int, weights: np.ndarray, before=lambda session: None) -> None:
    """Takes steps, and says after each what it has."""
    while session.steps < last:
        before(session)
        own = session.members()[session.rank]["id"]
        mean = gradient(session.steps, own)
        session.all_reduce({"mean": mean})
        weights -= mean
        ids = [each["id"] for each in session.members()]
        say(("step", session.steps - 1, session.epoch, ids, digest(mean), digest(weights)))


def lose(say, rank, world_size, address, spec, victims, changed) -> None:
    """Six steps, in the fourth of which the victims die."""
    weights = np.zeros(ELEMENTS, np.float32)

    def before(session) -> None:
        if session.steps == KILLED:
            say(("state", session.save()["residuals"]))
            if rank in victims:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        with deltawire.Session(
            spec, rank=rank, world_size=world_size, address=address, **settings(**changed)
        ) as session:
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

    with kept_port() as port:
        threads = [
            threading.Thread(target=run, args=(rank, f"127.0.0.1:{port}"))
            for rank in range(len(survivors))
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(LIMIT)
    return digests


@pytest.mark.parametrize(
    "spec,victims",
    [
        ("3lc", [0]),
        ("3lc", [1]),
        ("3lc", [2]),
        ("3lc", [3]),
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
        Membership._connect = lambda self, *_: (
            os.kill(os.getpid(), signal.SIGKILL) if self.steps else connect(self, *_)
        )
    lose(say, rank, world_size, address, "3lc", [first], {})


connect = Membership._connect


@pytest.mark.parametrize("second", [0, 1, 3])  # 0 is the host
def test_a_death_while_the_others_meet(second: int) -> None:
    survivors = [rank for rank in range(5) if rank not in (4, second)]
    with members(die_in_the_meeting, 5, 4, second) as (processes, _):
        said = [each.rest() for each in processes]
    rows = [[each[1:] for each in said[rank] if each[0] == "step"] for rank in survivors]
    assert len(rows[0]) == STEPS and all(each == rows[0] for each in rows)
    assert rows[0][KILLED][1] > 1  # a view was given up
    assert rows[0][-1][2] == survivors


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


def leave(say, rank, world_size, address) -> None:
    weights = np.zeros(ELEMENTS, np.float32)
    with deltawire.Session(
        "3lc", rank=rank, world_size=world_size, address=address, **settings()
    ) as session:
        steps_of(say, session, KILLED, weights)
        if rank < 2:
            session.leave()
            return
        steps_of(say, session, STEPS, weights)
        say(("events", session.events))


def test_who_leaves_by_will_is_missed_by_no_quorum() -> None:
    with members(leave, 4) as (processes, _):
        said = [each.rest() for each in processes]
    for rank in (2, 3):
        assert len([each for each in said[rank] if each[0] == "step"]) == STEPS
        whys = {gone["id"]: gone["why"] for each in said[rank][-1][1] for gone in each["gone"]}
        assert whys == {0: "it left", 1: "it left"}


def raising(say, rank, world_size, address) -> None:
    weights = np.zeros(ELEMENTS, np.float32)
    with deltawire.Session(
        "3lc", rank=rank, world_size=world_size, address=address, **settings()
    ) as session:
        steps_of(say, session, KILLED, weights)
        if rank == 1:
            raise ValueError("the data ended")
        steps_of(say, session, STEPS, weights)
        say(("events", session.events))


def test_an_exception_is_a_reason_to_leave() -> None:
    with members(raising, 3) as (processes, _):
        said = [each.rest() for each in processes]
    for rank in (0, 2):
        (event,) = said[rank][-1][1]
        assert "the data ended" in event["gone"][0]["why"]


def grow(say, rank, world_size, address, spec, elements) -> None:
    """Steps until a process has joined, and ten more."""
    weights = np.full(ELEMENTS, 7.0, np.float32)
    other = np.arange(elements, dtype=np.int64)
    place = {} if rank is None else {"rank": rank, "world_size": world_size}
    changed = settings(state=lambda: {"weights": weights, "other": other})
    with deltawire.Session(spec, **place, address=address, **changed) as session:
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
    place = {} if rank is None else {"rank": rank, "world_size": world_size}
    changed = settings(state=lambda: {"weights": weights})
    with deltawire.Session("3lc", **place, address=address, **changed) as session:
        end = time.monotonic() + LIMIT
        while rank == 0 and not session._crew.shall_admit() and time.monotonic() < end:
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
        probe = Caller(_core.token_of(SECRET.encode()), "auto")
        host, port = address.split(":")
        processes[0].until("step")
        view = probe.ask((host, int(port)), {"say": "probe"})["view"]
        _, other_host, other_port = view["members"][2]
        joiner = Process(grow, None, None, f"{other_host}:{other_port}", "3lc", 10)
        processes.append(joiner)
        assert joiner.until("joined")
        for each in processes:
            each.rest()


def burst(say, rank, world_size, address) -> None:
    """Two go on, though three come at once, and die before they are connected."""
    weights = np.zeros(ELEMENTS, np.float32)
    place = {} if rank is None else {"rank": rank, "world_size": world_size}
    membership._CONNECT_SECONDS = 2 * LIMIT
    if rank is None:
        Membership._connect = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    # Who waited for the dead would wait too long.
    changed = settings(connect_timeout=2 * LIMIT)
    with deltawire.Session("3lc", **place, address=address, **changed) as session:
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
    place = {} if rank is None else {"rank": rank, "world_size": world_size}
    changed = settings(at_least=3, state=lambda: {"weights": weights})
    with deltawire.Session("3lc", **place, address=address, **changed) as session:
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


def wait_for_members(port: int, ids: list[int]) -> None:
    """Until these are the members; the one at that port says so."""
    caller = Caller(_core.token_of(SECRET.encode()), "auto")
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        with contextlib.suppress(deltawire.DeltawireError):
            answer = caller.ask(("127.0.0.1", port), {"say": "probe"})
            if answer["job"] and [row[0] for row in answer["view"]["members"]] == ids:
                return
        time.sleep(0.05)
    raise AssertionError("they don't meet")


def test_the_guide_has_the_example_which_goes_on_without_a_rank() -> None:
    guide = (ROOT / "docs/guides/elastic.md").read_text()
    example = ROOT / "examples/elastic_session.py"
    assert f"```python\n{example.read_text()}```" in guide
    environment = os.environ | {"DELTAWIRE_TOKEN": SECRET, "STEPS": "120", "PAUSE": "0.05"}
    with kept_port() as port, contextlib.ExitStack() as started:

        def start(*place: str) -> subprocess.Popen:
            command = [sys.executable, str(example), f"127.0.0.1:{port}", *place]
            program = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            started.callback(program.kill)
            return program

        programs = [start(rank, "3") for rank in ("0", "1", "2")]
        wait_for_members(port, [0, 1, 2])
        programs.append(start())
        wait_for_members(port, [0, 1, 2, 3])
        programs[2].kill()
        said = [each.communicate(timeout=LIMIT)[0] for each in programs]
    ends = {text.split("epoch ")[1] for text in said[:2] + said[3:]}
    assert len(ends) == 1 and "of 3" in said[0], said


def try_to_join(say, address, changed) -> None:
    spec = changed.pop("spec", "3lc")
    try:
        with deltawire.Session(spec, address=address, **settings(**changed)):
            say(("in",))
    except deltawire.DeltawireError as error:
        say((error.code, str(error)))


def test_who_does_not_fit_does_not_join() -> None:
    with members(grow, 2, "3lc", 10) as (processes, address):
        processes[0].until("step")
        code, text = Process(try_to_join, address, {"spec": "int8"}).next()
        assert code == "Mismatch" and "int8" not in text.split(", not")[0], text
        other = {"token": "another secret of the tests", "connect_timeout": 3.0}
        assert Process(try_to_join, address, other).next()[0] == "Unauthorized"
        late = {"connect_timeout": 1.0}
        assert Process(try_to_join, "127.0.0.1:1", late).next()[0] == "Timeout"
        joiner = Process(grow, None, None, address, "3lc", 10)
        processes.append(joiner)
        said = [each.rest() for each in processes]
    assert len(said[0][-1][1]) == 1  # event


def split(say, rank, world_size, address, sides) -> None:
    """In the fourth step the sides can't hear each other any more."""
    weights = np.zeros(ELEMENTS, np.float32)
    changed = settings(connect_timeout=4.0, arrival_timeout=4.0)
    call = Caller.call
    try:
        with deltawire.Session(
            "3lc", rank=rank, world_size=world_size, address=address, **changed
        ) as session:
            steps_of(say, session, KILLED, weights)
            doors = {each["address"]: each["rank"] for each in session.members()}
            side = next(each for each in sides if rank in each)

            def call_within_a_side(self, address, seconds=3.0):
                if doors.get(f"{address[0]}:{address[1]}") not in side:
                    raise deltawire.make_error("Timeout", "the network is split")
                return call(self, address, seconds)

            Caller.call = call_within_a_side
            session._session.abort("the network is split")
            steps_of(say, session, STEPS, weights)
    except deltawire.DeltawireError as error:
        say(("error", error.code, str(error)))


@pytest.mark.parametrize("sides", [[[0, 1], [2, 3]], [[0], [1, 2, 3]], [[0, 3], [1], [2]]])
def test_one_side_of_a_split_goes_on(sides: list[list[int]]) -> None:
    with members(split, 4, sides) as (processes, _):
        said = [each.rest() for each in processes]
    goes_on = max(sides, key=lambda side: (len(side), -min(side)))
    for rank, found in enumerate(said):
        steps = [each[1:] for each in found if each[0] == "step"]
        if rank in goes_on:
            assert len(steps) == STEPS and steps[-1][2] == goes_on
        else:
            assert len(steps) == KILLED and found[-1][1] == "NoQuorum", found[-1]


def test_what_is_refused() -> None:
    with pytest.raises(deltawire.InvalidArgumentError, match="fold"):
        deltawire.Session("3lc", rank=0, world_size=1, **settings(revert="fold"))
    with pytest.raises(deltawire.InvalidArgumentError, match="elastic"):
        deltawire.Session("3lc", rank=0, world_size=1, at_least=2)
    with pytest.raises(deltawire.InvalidArgumentError, match="rank"):
        deltawire.Session("3lc", token=SECRET)
    with pytest.raises(deltawire.InvalidArgumentError, match="token"):
        os.environ.pop("DELTAWIRE_TOKEN", None)
        deltawire.Session("3lc", rank=0, world_size=1, elastic=True)


def test_a_world_that_is_not_complete_names_who_is_missing() -> None:
    begun = time.monotonic()
    with kept_port() as port, pytest.raises(deltawire.DeltawireError, match="ranks 1, 2") as caught:
        deltawire.Session(
            "3lc",
            rank=0,
            world_size=3,
            address=f"127.0.0.1:{port}",
            **settings(connect_timeout=1.0),
        )
    assert caught.value.code == "Timeout" and time.monotonic() - begun < 10


def test_errors_that_end_the_session_name_the_epoch() -> None:
    with deltawire.Session("3lc", rank=0, world_size=1, **settings()) as session:
        with pytest.raises(deltawire.DeltawireError, match=r"\(epoch 0\)") as caught:
            session.all_reduce({"x": np.full(ELEMENTS, np.nan, np.float32)})
        assert caught.value.code == "NotFinite" and caught.value.epoch == 0
        with pytest.raises(deltawire.DeltawireError, match=r"\(epoch 0\)"):
            session.all_reduce({"x": np.zeros(ELEMENTS, np.float32)})
