"""The state of a process that joins an elastic session: chunks from several members."""

import contextlib
import hashlib
import json
import os
import signal
import threading
import time

import deltawire
import numpy as np
import pytest
from deltawire import _core
from deltawire.elastic import state as elastic_state
from deltawire.elastic.calls import Caller, hear_within
from deltawire.elastic.state import Offer, Plan, Taking
from members import CONTEXT, LIMIT, SECRET, Process, members, settings

CHUNK = 1 << 14
CHUNKS = 40


def random_bytes(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, count, np.uint8)


@pytest.mark.parametrize("count", [0, 1, CHUNK, 3 * CHUNK + 5])
def test_a_state_is_what_it_was(monkeypatch, count):
    monkeypatch.setattr(elastic_state, "CHUNK_BYTES", CHUNK)
    given = {
        "bytes": random_bytes(count),
        "weights": np.array([np.nan, -0.0, 1e-42, np.inf], np.float32),
        "scalar": np.array(3.5),
        "table": np.arange(6, dtype=np.int64).reshape(2, 3).T,
        "empty": np.zeros((0, 4), np.float16),
    }
    offer = Offer(given)
    plan = Plan(offer.plan())
    held = {
        each: elastic_state._unpacked(offer.chunk(each), plan.size_of(each), each)
        for each in plan.digests
    }
    assert len(held) == len(plan.digests) == -(-sum(a.nbytes for a in given.values()) // CHUNK)
    for name, array in plan.arrays(held).items():
        assert array.dtype == given[name].dtype and array.shape == given[name].shape
        assert array.tobytes() == given[name].tobytes(), name
    assert offer.chunk("0" * 64) is None and offer.chunk(None) is None


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (None, "a NoneType, where a dict"),
        ([np.zeros(3)], "a list, where a dict"),
        ({3: np.zeros(3)}, "the name 3, where a dict"),
        ({"a": [[1], [1, 2]]}, "'a', of which NumPy makes no array"),
        ({"a": np.array([object()])}, "'a' as object"),
        ({"a": np.zeros(3, [("x", "f4")])}, "'a' as "),
    ],
)
def test_a_state_that_cannot_be_given_is_named(state, words):
    with pytest.raises(deltawire.DeltawireError) as refused:
        Offer(state)
    assert f"state= gave {words}" in str(refused.value)


def test_equal_weights_take_less_than_their_bytes():
    weights = np.random.default_rng(0).standard_normal(1 << 18).astype(np.float32)
    offer = Offer({"weights": weights})
    (digest,) = Plan(offer.plan()).digests
    assert len(offer.chunk(digest)) < 0.9 * weights.nbytes


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": [["a", "<f4", [-1]]]},
        {"rows": [["a", "<f4", [1 << 50]]]},
        {"rows": [["a", "|O", [2]]]},
        {"rows": [["a", "<f4"]]},
        {"rows": [["a", "<f4", [float("inf")]]]},
        {"rows": [["a", "<f4", [1 << 10]], ["b", "|S0", [2]]]},
        {"rows": None},
        {"chunk_bytes": 0},
        {"chunk_bytes": 1 << 10},
        {"digests": []},
    ],
)
def test_a_plan_that_can_not_be_is_refused(changed):
    told = json.loads(Offer({"a": np.zeros(1 << 10, np.float32)}).plan())
    with pytest.raises(deltawire.DeltawireError) as caught:
        Plan(json.dumps(told | changed).encode())
    assert caught.value.code == "Corrupt"


def test_other_bytes_are_refused():
    offer = Offer({"a": random_bytes(1000), "b": random_bytes(999)})
    (digest,) = Plan(offer.plan()).digests
    data = offer.chunk(digest)
    for count, name in ((1995, digest), (1999, hashlib.sha256(b"").hexdigest())):
        with pytest.raises(deltawire.DeltawireError):
            elastic_state._unpacked(data, count, name)


def give_and_die(say, rank, world_size, address, dies) -> None:
    """Rank 0 dies when it is asked for its third chunk by the process that joins; till then, when
    `dies` is set, the others give none."""
    elastic_state.CHUNK_BYTES = CHUNK
    weights = random_bytes(CHUNKS * CHUNK)
    place = {} if rank is None else {"rank": rank, "world_size": world_size}
    given, unpacked, chunk = [], elastic_state._unpacked, Offer.chunk

    def counted(self, digest):
        given.append(digest)
        if rank == 0 and len(given) == 3:
            dies.set()
            os.kill(os.getpid(), signal.SIGKILL)
        assert rank == 0 or dies.wait(LIMIT)
        return chunk(self, digest)

    def noted(data, count, digest):
        given.append(digest)
        return unpacked(data, count, digest)

    if rank is None:
        elastic_state._unpacked = noted
    else:
        Offer.chunk = counted
    changed = settings(state=lambda: {"weights": weights})
    with deltawire.Session("fp32", **place, address=address, **changed) as session:
        if rank is None:
            say(("taken", len(given), len(set(given))))
            assert (session.joined_state["weights"] == weights).all()
        say(("in", session.rank))
        while not any(each["joined"] for each in session.events) and rank is not None:
            session.all_reduce({"x": np.ones(300, np.float32)})
        begun = session.steps
        for _ in range(2 if rank is not None else 3):
            session.all_reduce({"x": np.ones(300, np.float32)})
        say(("given", len(given), session.steps - begun))


def test_a_state_comes_from_all_and_goes_on_when_a_giver_dies():
    dies = CONTEXT.Event()
    with members(give_and_die, 3, dies) as (processes, address):
        processes[2].until("in")
        joiner = Process(give_and_die, None, None, address, dies)
        processes.append(joiner)
        # Each chunk came once, though the host died, and another one began anew.
        assert joiner.until("taken")[1:] == (CHUNKS, CHUNKS)
        assert joiner.until("given")
        by_others = [each.until("given")[1] for each in processes[1:3]]
        assert processes[0].rest() == [("in", 0)]
    assert sum(by_others) == CHUNKS - 2 and all(by_others), by_others


def give_when_mended(say, rank, world_size, address, mended) -> None:
    def state() -> dict:
        if not mended[rank].is_set():
            raise ValueError("no weights yet")
        return {"weights": np.full(300, 7, np.float32)}

    place = {"rank": rank, "world_size": world_size}
    with deltawire.Session("fp32", **place, address=address, **settings(state=state)) as session:
        say(("in", rank))
        while not any(each["joined"] for each in session.events):
            session.all_reduce({"x": np.ones(300, np.float32)})


def test_a_state_that_fails_refuses_who_joins_and_ends_nobody():
    mended = [CONTEXT.Event() for _ in range(2)]
    with members(give_when_mended, 2, mended) as (processes, address):
        processes[1].until("in")
        words = f"state= of the member at {address} failed: ValueError: no weights yet"
        with pytest.raises(deltawire.DeltawireError, match=words) as refused:
            deltawire.Session("fp32", address=address, **settings())
        assert refused.value.code == "Aborted"
        mended[0].set()  # the host gives it, though the other one can't
        with deltawire.Session("fp32", address=address, **settings()) as session:
            assert (session.joined_state["weights"] == 7).all() and session.rank == 2
            session.all_reduce({"x": np.ones(300, np.float32)})
        assert [each.rest() for each in processes] == [[("in", 0)], []]


def test_a_giver_that_is_frozen_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr(elastic_state, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(elastic_state, "SILENCE", 0.2)
    token = _core.token_of(SECRET.encode())
    caller = Caller(token, "auto")
    doors = [_core.open_door(_core.Listener("127.0.0.1", 0), token, "auto") for _ in range(2)]
    given = {"weights": random_bytes(3 * CHUNK)}
    offer, asked = Offer(given), threading.Event()

    def freeze() -> None:
        line = doors[0].answer(round(1e3 * LIMIT))
        assert hear_within(line, LIMIT)["say"] == "take"
        asked.set()
        over.wait(LIMIT)

    def serve() -> None:
        line = doors[1].answer(round(1e3 * LIMIT))
        first = hear_within(line, LIMIT)
        asked.wait(LIMIT)  # the other one has been asked for a chunk
        with contextlib.suppress(deltawire.DeltawireError):
            elastic_state.give(line, first, lambda: offer, LIMIT)

    over = threading.Event()
    for member in (freeze, serve):
        threading.Thread(target=member, daemon=True).start()
    taking, plan = Taking(), Plan(offer.plan())
    end = time.monotonic() + 10
    for _ in taking.take(plan, caller, [door.endpoint for door in doors], LIMIT):
        if time.monotonic() > end:
            break
    assert taking.has_all() and (taking.arrays()["weights"] == given["weights"]).all()
    over.set()
