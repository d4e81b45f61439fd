"""Why a rank has left: an exception that ended its program, or its `with`, is reported to the
others, and printed by Python as ever."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from deltawire.errors import make_error
from deltawire.session import leaving
from ports import kept_port


def under_way(raise_, at_exit=False):
    try:
        raise_()
    except BaseException:
        return leaving.exception_under_way(at_exit)


def fails(error):
    def raise_():
        raise error

    return raise_


def exits_of(error, code):
    def raise_():
        try:
            raise error
        except type(error):
            sys.exit(code)

    return raise_


def test_which_exception_is_a_reason():
    bug = ValueError("user bug")
    assert leaving.exception_under_way() is None
    assert under_way(fails(bug)) is bug
    assert under_way(fails(KeyboardInterrupt())).__class__ is KeyboardInterrupt
    assert under_way(fails(SystemExit(0))) is None and under_way(fails(SystemExit())) is None
    assert under_way(fails(SystemExit("no data"))).code == "no data"
    assert under_way(exits_of(bug, 1)) is bug, "torch.multiprocessing.spawn ends so"
    assert under_way(exits_of(bug, 0)) is None
    for end in (StopIteration(), GeneratorExit()):
        assert under_way(fails(end)) is None


def test_sigterm_is_an_exit_where_nothing_else_handles_it(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    try:
        for handled in (signal.SIG_IGN, lambda *_: None):
            signal.signal(signal.SIGTERM, handled)
            leaving._exit_at_sigterm()
            assert signal.getsignal(signal.SIGTERM) is handled
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        thread = threading.Thread(target=leaving._exit_at_sigterm)
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "another thread"
        leaving._exit_at_sigterm()
        with pytest.raises(SystemExit) as end:
            signal.raise_signal(signal.SIGTERM)
        assert end.value.code == 143
        told = str(leaving.gave_up(2, end.value))
        assert "rank 2 gave up: SIGTERM has ended its process" in told
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_ended_the_program_counts_at_its_end_alone(monkeypatch):
    bug = ValueError("user bug")
    monkeypatch.setattr(sys, "last_value", bug, raising=False)
    assert leaving.exception_under_way() is None
    assert leaving.exception_under_way(at_exit=True) is bug
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert leaving.exception_under_way(at_exit=True) is None, "a prompt keeps old ones"


def test_the_others_read_one_line():
    error = leaving.gave_up(3, ValueError("two\nlines"))
    assert str(error) == "rank 3 gave up: ValueError: two lines"
    assert (error.code, error.suspect, error.reporter) == ("Aborted", 3, 3)
    assert leaving.problem_of(KeyboardInterrupt()) == "KeyboardInterrupt", "in elastic sessions"
    interrupted = leaving.gave_up(3, KeyboardInterrupt(), "global rank 3")
    assert str(interrupted) == "global rank 3 gave up: KeyboardInterrupt"
    ours = make_error("Timeout", "rank 1 waited 3 ms for rank 2", 2)
    assert leaving.gave_up(3, ours) is ours


PROGRAM = """
import multiprocessing, sys
import numpy as np
import deltawire

def train(rank, how):
    session = deltawire.Session("fp32", rank=rank, world_size=2, address=sys.argv[1],
                                token=b"a token of this test", timeout=60, arrival_timeout=60)
    if how == "finally":
        try:
            steps(session, rank)
        finally:
            session.close()
    elif how == "with":
        with session:
            steps(session, rank)
    else:
        steps(session, rank, how)

def steps(session, rank, how=""):
    for step in range(10):
        if rank == 1 and step == 3:
            if how == "end":
                return
            if how == "exit":
                sys.exit("no data left")
            raise ValueError("a bug of the user")
        try:
            session.all_reduce({"x": np.ones(4, np.float32)})
        except deltawire.DeltawireError as error:
            print("rank 0 reads", error.code, error.suspect, error, flush=True)
            return

rank, how = int(sys.argv[2]), sys.argv[3]
if how == "own hook":
    sys.excepthook = lambda kind, error, trace: print("my own hook:", error, file=sys.stderr)
if how in ("child", "exit"):
    child = multiprocessing.get_context("fork").Process(target=train, args=(rank, how))
    child.start()
    child.join()
else:
    train(rank, how)
"""

SAID = "a bug of the user"


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("uncaught", f"rank 1 gave up: ValueError: {SAID}"),
        ("own hook", f"rank 1 gave up: ValueError: {SAID}"),
        ("child", f"rank 1 gave up: ValueError: {SAID}"),
        ("finally", f"rank 1 gave up: ValueError: {SAID}"),
        ("with", f"rank 1 gave up: ValueError: {SAID}"),
        ("exit", "rank 1 gave up: SystemExit: no data left"),
        ("end", "rank 1 left in good order"),
    ],
)
def test_a_rank_says_why_it_leaves(how, told):
    with kept_port() as port:
        command = [sys.executable, "-c", PROGRAM, f"127.0.0.1:{port}"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        pipes["env"] = os.environ | {"OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([*command, str(rank), how], **pipes) for rank in (0, 1)]
        try:
            said = [rank.communicate(timeout=60) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    code = "PeerLost" if how == "end" else "Aborted"
    assert said[0][0].startswith(f"rank 0 reads {code} 1 {told}"), said
    printed = said[1][1]
    if how == "own hook":
        assert printed == f"my own hook: {SAID}\n"
    elif how not in ("exit", "end"):
        assert printed.count(SAID) == 1, "printed twice, or not at all"
    else:
        assert SAID not in printed
