"""Members of an elastic session, and processes that join one, have patience with busy ones."""

import ctypes
import threading
import time

import deltawire
import numpy as np
import pytest
from deltawire import _core
from elastic_steps import ELEMENTS, KILLED, STEPS, steps_of
from member_door import JOIN, refusal, token
from members import LIMIT, SECRET, members, session_of


def test_who_joins_waits_for_a_member_that_is_slow():
    door = _core.open_door(_core.Listener("127.0.0.1", 0), token(), "auto")
    host, port = door.endpoint
    asked = []

    def answer() -> None:
        line = door.answer(round(1e3 * LIMIT))
        asked.append(line.receive(1 << 20, round(1e3 * LIMIT))[1])
        time.sleep(4.0)  # longer than a member would wait
        line.send(refusal("this is the answer"), round(1e3 * LIMIT))

    member = threading.Thread(target=answer)
    member.start()
    with pytest.raises(deltawire.DeltawireError, match="this is the answer"):
        deltawire.Session(
            "3lc", address=f"{host}:{port}", elastic=True, token=SECRET, connect_timeout=LIMIT
        )
    member.join()
    assert asked == [JOIN]


def stall(say, rank, world_size, address) -> None:
    """In the fourth step rank 0, which is to host the meeting, makes a call that keeps the GIL."""

    def before(session) -> None:
        if session.steps == KILLED:
            say(("stalls",))
            if rank == 0:
                ctypes.PyDLL(None).sleep(4)

    with session_of(rank, world_size, address) as session:
        steps_of(say, session, STEPS, np.zeros(ELEMENTS, np.float32), before)


def test_a_member_that_keeps_its_gil_is_waited_for() -> None:
    with members(stall, 3) as (processes, _):
        processes[0].until("stalls")
        processes[2].kill()
        said = [[each[1:] for each in member.rest()] for member in processes[:2]]
    assert said[0] == said[1][-len(said[0]) :]
    assert [row[2] for row in said[0]] == [[0, 1]] * (STEPS - KILLED)


def test_what_asks_whether_to_go_on_connecting_may_end_it():
    def ends(asked) -> deltawire.DeltawireError | ZeroDivisionError:
        listener = _core.Listener("127.0.0.1", 0)
        mesh = _core.Mesh.at(listener.endpoint, 0, 2, token())
        mesh.connect_timeout_ms = round(1e3 * LIMIT)
        mesh.set_interrupted(asked)
        with pytest.raises((deltawire.DeltawireError, ZeroDivisionError)) as caught:
            _core.Session(listener, mesh, "fp32", _core.ReducerOptions(256, "exact"))
        return caught.value

    assert ends(lambda: True).code == "Aborted"
    assert isinstance(ends(lambda: 1 // 0), ZeroDivisionError)
