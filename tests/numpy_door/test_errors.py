"""What an error tells a program: fields that the core fills, on every rank alike."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from deltawire import _core, errors
from deltawire.errors import changed, make_error, with_advice

NUMBERS = [1, 3]  # of the ranks of a part of a job
NAME = "layers.rank 1.w"
MS = 60_000


def at_once(*calls) -> list:
    """What each returned, on threads of their own."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(lambda call: call(), calls))


def of_part(spec: str) -> list:
    """Two sessions whose errors name the ranks of the whole job."""
    listeners = [_core.Listener("127.0.0.1") for _ in NUMBERS]

    def opened(rank):
        ends = [listener.endpoint for listener in listeners]
        mesh = _core.Mesh(rank, ends, bytes(range(32)), "a test")
        mesh.name_ranks("global rank", NUMBERS)
        options = _core.ReducerOptions(8, "exact", 1, "error")
        return _core.Session(listeners[rank], mesh, spec, options)

    return at_once(*(lambda rank=rank: opened(rank) for rank in range(len(NUMBERS))))


def step(session, array, agreed=0):
    """Its error."""
    ended, found = threading.Event(), []

    def end(error, _report):
        found.append(error)
        ended.set()

    where = [(NAME, array.ctypes.data, array.nbytes, array.shape)]
    session.submit(where, _core.Step(0, 0, True, agreed=agreed), MS, end)
    ended.wait()
    return found[0]


def test_a_tensors_name_stays_as_it_is():
    sessions = of_part("3lc")
    arrays = [np.ones(1000, np.float32) for _ in sessions]
    arrays[1][4] = np.nan
    here, there = at_once(
        *(lambda s=s, a=a: step(s, a) for s, a in zip(sessions, arrays, strict=True))
    )
    assert str(here).startswith(f"global rank 3 reports: part '{NAME}': "), here
    assert (here.reporter, here.suspect) == (3, 3)
    assert str(there).startswith(f"part '{NAME}': "), there
    assert (there.reporter, there.suspect) == (None, 3)
    for error in (here, there):
        assert error.code == "NotFinite" and error.tensor == NAME
        assert error.advice == "mend the input, or let such steps pass (nonfinite)"


def test_an_error_of_other_ranks_is_passed_on_with_its_fields():
    sessions = of_part("fp32")
    bug = make_error(
        "Mismatch",
        "global rank 0 gave up: ValueError: rank 1",
        0,
        4,
        reporter=0,
        waits_for=1,
        ranks=(2, 3),
        tensor=NAME,
        advice="mend it",
    )
    sessions[1].abort(bug)
    for session in sessions:
        error = session.failure(MS)
        assert str(error) == str(bug)
        assert error.code == "Aborted", "that rank gave up, and this one did not find it"
        assert error.last_committed_step is None, "its own"
        for name in ("suspect", "reporter", "waits_for", "ranks", "tensor", "advice"):
            assert getattr(error, name) == getattr(bug, name), name


def test_a_code_that_the_core_does_not_know_is_passed_on_as_aborted():
    sessions = of_part("fp32")
    sessions[1].abort(make_error("NoQuorum", "too few are left", 3))
    error = sessions[0].failure(MS)
    assert (error.code, str(error)) == ("Aborted", "global rank 3 reports: too few are left")


def test_who_does_not_come_is_named_as_the_job_does():
    listeners = [_core.Listener("127.0.0.1") for _ in NUMBERS]
    mesh = _core.Mesh(0, [each.endpoint for each in listeners], bytes(range(32)), "a test")
    mesh.name_ranks("global rank", NUMBERS)
    mesh.connect_timeout_ms = 100
    with pytest.raises(errors.DeltawireError, match=r"with global rank 3 \(") as caught:
        _core.Session(listeners[0], mesh, "fp32", _core.ReducerOptions(8, "exact", 1, "error"))
    error = caught.value
    assert str(error).startswith("global rank 1 found no connection in 100 ms")
    assert (error.code, error.reporter, error.suspect, error.ranks) == ("Timeout", 1, 3, (3,))


@pytest.mark.parametrize("way", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_copy_has_all_fields(way):
    error = changed(
        make_error(
            "NoMemory", "too much", 1, 7, reporter=2, waits_for=3, ranks=[4, 5], tensor=NAME,
            advice="take less",
        ),
        epoch=6,
    )  # fmt: skip
    other = way(error)
    assert type(other) is type(error) is errors.NoMemoryError
    assert str(other) == str(error) == "too much; take less"
    assert vars(other) == vars(error)
    assert (other.ranks, other.epoch, other.last_committed_step) == ((4, 5), 6, 7)


def test_advice_is_the_end_of_the_line():
    error = make_error("Range", "beyond\nit", 1, advice="scale it")
    assert (error.message, str(error)) == ("beyond it", "beyond it; scale it")
    assert str(with_advice(error, "or leave it")) == "beyond it; scale it; or leave it"
    other = changed(error, advice="skip it")
    assert (str(other), other.code, other.suspect) == ("beyond it; skip it", "Range", 1)
    assert str(with_advice(make_error("Range", "beyond it"), "skip it")) == "beyond it; skip it"


def test_no_memory_is_a_memory_error():
    error = make_error("NoMemory", "out of memory while encoding a message", 1)
    assert isinstance(error, MemoryError) and isinstance(error, errors.NoMemoryError)
    assert error.code == "NoMemory"
