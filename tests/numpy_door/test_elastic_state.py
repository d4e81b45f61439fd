"""The state of a process that joins an elastic session: chunks from several members."""

import deltawire
import numpy as np
import pytest
from deltawire.session.elastic import offered
from members import CONTEXT, Process, members, session_of


def carry(say, rank, world_size, address, count) -> None:
    """Who joins gets arrays of all kinds, bit for bit."""
    given = {
        "bytes": np.random.default_rng(count).integers(0, 256, count, np.uint8),
        "weights": np.array([np.nan, -0.0, 1e-42, np.inf], np.float32),
        "scalar": np.array(3.5),
        "table": np.arange(6, dtype=np.int64).reshape(2, 3).T,
        "empty": np.zeros((0, 4), np.float16),
    }
    with session_of(rank, world_size, address, "fp32", state=lambda: given) as session:
        say(("in", session.rank))
        if rank is None:
            for name, array in session.joined_state.items():
                assert array.dtype == given[name].dtype and array.shape == given[name].shape
                assert array.tobytes() == given[name].tobytes(), name
            assert session.joined_state.keys() == given.keys()
            session.all_reduce({"x": np.ones(300, np.float32)})
            say(("the same",))
        while rank is not None and not any(each["joined"] for each in session.events):
            session.all_reduce({"x": np.ones(300, np.float32)})


@pytest.mark.parametrize("count", [0, 10_000_001])
def test_a_state_is_what_it_was(count):
    with members(carry, 1, count) as (processes, address):
        processes[0].until("in")
        processes.append(Process(carry, None, None, address, count))
        assert processes[1].until("the same")


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
    assert f"state= gave {words}" in offered(lambda: state)


def give_when_mended(say, rank, world_size, address, mended) -> None:
    def state() -> dict:
        if not mended[rank].is_set():
            raise ValueError("no weights yet")
        return {"weights": np.full(300, 7, np.float32)}

    with session_of(rank, world_size, address, "fp32", state=state) as session:
        say(("in", rank))
        while not any(each["joined"] for each in session.events):
            session.all_reduce({"x": np.ones(300, np.float32)})


def test_a_state_that_fails_refuses_who_joins_and_ends_nobody():
    mended = [CONTEXT.Event() for _ in range(2)]
    with members(give_when_mended, 2, mended) as (processes, address):
        processes[1].until("in")
        words = f"state= of the member at {address} failed: ValueError: no weights yet"
        with pytest.raises(deltawire.DeltawireError, match=words) as refused:
            session_of(None, None, address, "fp32")
        assert refused.value.code == "Aborted"
        mended[0].set()  # the host gives it, though the other one can't
        with session_of(None, None, address, "fp32") as session:
            assert (session.joined_state["weights"] == 7).all() and session.rank == 2
            session.all_reduce({"x": np.ones(300, np.float32)})
        assert [each.rest() for each in processes] == [[("in", 0)], []]
