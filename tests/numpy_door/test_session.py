"""`deltawire.Session`: ranks that are processes, found at an address, averaging NumPy arrays."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import deltawire
import numpy as np
import pytest
from forked import CONTEXT, Forked
from ports import kept_port

TOKEN = "a token of the tests, long enough"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "numpy_two_ranks.py"


def session(
    rank: int, world_size: int, address: str, spec="3lc:s=1.5", **more
) -> deltawire.Session:
    more = {"token": TOKEN, "timeout": 20.0, "connect_timeout": 20.0} | more
    return deltawire.Session(spec, rank=rank, world_size=world_size, address=address, **more)


def gradient(rank: int, step: int = 0, count: int = 5000) -> np.ndarray:
    return np.random.default_rng((rank, step)).standard_normal(count).astype(np.float32)


def raised(action) -> tuple:
    try:
        action()
    except deltawire.DeltawireError as error:
        return type(error).__name__, error.code, str(error), error.suspect
    return ()


def average(rank, world_size, address, spec):
    with session(rank, world_size, address, spec) as door:
        metrics = door.metrics()
        assert (metrics["steps"], metrics["digest"], metrics["finite"]) == (0, None, True)
        arrays = {"a": gradient(rank).reshape(50, 100), "b": np.full((), rank, np.float32)}
        report = door.all_reduce(arrays)
        assert report.element_count == 5001 and door.steps == 1
        assert f"{report.bytes_sent} of {report.raw_bytes} bytes" in repr(report)
        assert repr(report).endswith(f"digest {report.digest:016x}>")
        metrics = door.metrics()
        assert metrics["steps"] == 1 and metrics["traffic_bytes_sent"] > metrics["bytes_sent"] > 0
        assert door.step_records[0]["digest"] == report.digest
        return arrays["a"].tobytes(), float(arrays["b"]), door.spec


@pytest.mark.parametrize("spec", ["fp32", "3lc", "gather(sbc)"])
def test_all_ranks_get_the_same_mean(address: str, spec: str) -> None:
    found = Forked(average, 3, address, spec).values()
    assert len(set(found)) == 1
    bytes_of_a, b, canonical = found[0]
    assert b == 1.0 and canonical == deltawire.canonical_spec(spec)
    mean = sum(gradient(rank) for rank in range(3)) / 3
    got = np.frombuffer(bytes_of_a, np.float32)
    if spec == "fp32":
        assert np.allclose(got, mean, atol=1e-6)
    else:
        assert np.linalg.norm(got - mean) > 0.0 and got @ mean > 0


def average_tensor(rank, world_size, address):
    class Tensor:
        """What speaks DLPack, and nothing else."""

        def __init__(self, values):
            self.values = values

        def __dlpack__(self, **arguments):
            return self.values.__dlpack__(**arguments)

        def __dlpack_device__(self):
            return self.values.__dlpack_device__()

    values = np.full(300, rank, np.float32)
    with session(rank, world_size, address, "fp32") as door:
        door.all_reduce({"x": Tensor(values)})
    return values.tolist()


def test_memory_of_others_by_dlpack(address: str) -> None:
    assert Forked(average_tensor, 2, address).values() == 2 * [[0.5] * 300]


def refuse(rank, world_size, address):
    with session(rank, world_size, address, "fp32") as door:
        frozen = np.zeros(300, np.float32)
        frozen.flags.writeable = False
        shared = np.zeros(600, np.float32)
        bad = [
            {},
            [np.zeros(3, np.float32)],
            {1: np.zeros(3, np.float32)},
            {"x": [1.0, 2.0]},
            {"x": np.zeros(3)},
            {"x": np.zeros(3, ">f4")},
            {"x": np.zeros((4, 6), np.float32)[:, ::2]},
            {"x": frozen},
            {"x": shared[299:], "y": shared[:300]},
        ]
        errors = [raised(lambda arrays=arrays: door.all_reduce(arrays)) for arrays in bad]
        errors.append(raised(lambda: door.all_reduce(bad[-1], weight=1)))
        errors += [
            raised(lambda s=s: door.all_reduce({"x": gradient(0)}, scale=s)) for s in (0, "1")
        ]
        shared[:] = rank
        # Nothing of the refused ones was sent; neighbours and empty arrays share no memory.
        empty = np.ndarray(0, np.float32, shared, 36)
        door.all_reduce({"x": shared[300:], "y": shared[:300], "z": empty})
        return errors, shared.mean()


def test_arrays_that_are_refused_end_nothing(address: str) -> None:
    for errors, mean in Forked(refuse, 2, address).values():
        assert mean == 0.5
        words = [
            "by name",
            "by name",
            "name 1",
            "list",
            "float64",
            ">f4",
            "C-contiguous",
            "read-only",
            *["'y' and 'x' share memory"] * 2,
            "scale=0",
            "scale='1'",
        ]
        for (_, _, said, _), word in zip(errors, words, strict=True):
            assert word in said


def keep(rank, world_size, address, moved):
    sums = []
    with session(rank, world_size, address) as door:
        for step in range(4):
            values = gradient(rank, step)
            door.all_reduce({"x": values})
            sums.append(values)
            state = door.save() if step == 1 else None
            if state:
                kept = state
    host, port = address.rsplit(":", 1)
    with session(rank, world_size, f"{host}:{moved}") as door:
        wrong = raised(lambda: door.load(kept | {"rank": 7}))
        assert wrong[1] == "InvalidArgument" and "rank 7" in wrong[2]
        assert "residuals" in raised(lambda: door.load({"version": 1}))[2]
        assert "NoneType" in raised(lambda: door.load(kept | {"residuals": None}))[2]
        assert "steps=" in raised(lambda: door.load(kept | {"steps": 1 << 63}))[2]
        door.load(kept)
        assert door.steps == 2
        for step in (2, 3):
            values = gradient(rank, step)
            door.all_reduce({"x": values})
            assert np.array_equal(values, sums[step])
    return True


def test_a_state_goes_on_where_it_was(address: str) -> None:
    with kept_port() as moved:
        assert Forked(keep, 2, address, moved).values() == [True, True]


def meet_in_vain(rank, world_size, address, settings):
    more = settings[rank]
    began = time.monotonic()
    found = raised(lambda: session(rank, more.pop("world_size", world_size), address, **more))
    return found, time.monotonic() - began


@pytest.mark.parametrize(
    "other,codes,words",
    [
        ({"spec": "fp32"}, ["Mismatch", "Mismatch"], 'rank 1 has the settings "direct(fp32)"'),
        ({"min_elements": 1}, ["Mismatch", "Mismatch"], "min_elements=1"),
        ({"revert": "fold"}, ["Mismatch", "Mismatch"], 'rank 0 has "revert=exact"'),
        ({"world_size": 3}, ["Mismatch", "Mismatch"], "started for a world of"),
        ({"token": "another token, long too"}, ["Timeout", "Unauthorized"], "token"),
    ],
)
def test_ranks_that_do_not_fit(address: str, other: dict, codes: list[str], words: str) -> None:
    settings = [{"connect_timeout": 3.0}, {"connect_timeout": 3.0} | other]
    found = Forked(meet_in_vain, 2, address, settings).values()
    assert [error[1] for error, _ in found] == codes, found
    assert all(words in error[2] for error, _ in found)
    assert all(seconds < 25 for _, seconds in found)


def test_ranks_that_never_come(address: str) -> None:
    alone = raised(lambda: session(0, 3, address, connect_timeout=2.0))
    assert alone[1] == "Timeout" and "with rank 1, rank 2;" in alone[2] and alone[3] is None
    alone = raised(lambda: session(1, 3, address, connect_timeout=2.0))
    assert alone[1] == "Timeout" and f"nobody in 2000 ms at {address}" in alone[2]
    assert alone[3] == 0


def lose(rank, world_size, address):
    door = session(rank, world_size, address, "fp32", arrival_timeout=2.0)
    values = gradient(rank)
    door.all_reduce({"x": values})
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    before = gradient(0, 1)
    values = before.copy()
    error = raised(lambda: door.all_reduce({"x": values}))
    assert np.array_equal(values, before) and door.last_error is not None
    assert door.save()["steps"] == 1
    return error


def test_a_rank_that_dies_is_named(address: str) -> None:
    ranks = Forked(lose, 2, address)
    error = ranks.value(0)
    assert error[1] == "PeerLost" and error[3] == 1


def interrupt(rank, world_size, address, interrupted):
    door = session(rank, world_size, address, "fp32")
    values = {"x": gradient(rank)}
    if rank == 0:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 2.0)  # it waits for rank 1 by then
            door.all_reduce(values)
        interrupted.set()
        door.close()
        return "interrupted"
    assert interrupted.wait(60)
    return raised(lambda: door.all_reduce(values))[2]


def test_ctrl_c_ends_the_step_on_every_rank(address: str) -> None:
    interrupted = CONTEXT.Event()
    found = Forked(interrupt, 2, address, interrupted).values()
    assert found[0] == "interrupted" and "interrupted on rank 0" in found[1]


def test_arguments_that_can_not_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELTAWIRE_TOKEN", raising=False)
    good = {"rank": 0, "world_size": 2, "address": "127.0.0.1:29600", "token": TOKEN}
    for bad, word in (
        ({"rank": 2}, "below world_size=2"),
        ({"rank": -1}, "rank=-1"),
        ({"world_size": 0}, "world_size=0"),
        ({"world_size": 70_000}, "at most 65,535"),
        ({"threads": 1 << 31}, "threads=2147483648"),
        ({"address": None}, "no address"),
        ({"address": "29600"}, 'address: "29600" is not HOST:PORT'),
        ({"address": "host:0"}, '"host:0" is not HOST:PORT'),
        ({"address": "::1:29600"}, "[fd00::1]:29600"),
        ({"token": None}, "DELTAWIRE_TOKEN"),
        ({"token": "short"}, "16 bytes"),
        ({"timeout": 0}, "timeout=0"),
        ({"address": "192.0.2.1:29600"}, "192.0.2.1:29600 is not an address of this machine"),
    ):
        error = raised(lambda bad=bad: deltawire.Session("fp32", **(good | bad)))
        assert error and word in error[2], (bad, error)


def test_one_rank_alone_needs_no_other() -> None:
    with deltawire.Session("fp32", rank=0, world_size=1) as door:
        values = gradient(0)
        door.all_reduce({"x": values})
        assert np.array_equal(values, gradient(0))
    assert door.closed


def test_the_example(address: str) -> None:
    env = os.environ | {
        "DELTAWIRE_TOKEN": TOKEN,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    lines = [[sys.executable, str(EXAMPLE), str(rank), address] for rank in (0, 1)]
    programs = [
        subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for line in lines
    ]
    said = []
    for program in programs:
        out, err = program.communicate(timeout=100)
        assert program.returncode == 0, err.decode()
        said.append(
            re.fullmatch(r"rank (\d): (.*) from the truth, (.*) times .* (\w+)\n", out.decode())
        )
    assert [found[1] for found in said] == ["0", "1"]
    assert said[0][4] == said[1][4] and float(said[0][2]) < 0.02
    assert float(said[0][3]) > 15


def test_the_old_name_of_an_errors_attribute_names_the_new_one():
    error = deltawire.errors.make_error("Timeout", "too late", 1, 7)
    assert error.last_committed_step == 7 and not hasattr(error, "anything_else")
    with pytest.raises(AttributeError, match="standing_step is called last_committed_step"):
        _ = error.standing_step
