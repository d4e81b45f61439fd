"""A process that joins an elastic session has patience with members of a busy machine."""

import threading
import time

import deltawire
import pytest
from deltawire import _core
from deltawire.elastic import founding
from deltawire.elastic.calls import Caller, hear_within, say
from members import LIMIT, SECRET


def test_who_joins_waits_for_a_member_that_is_slow(monkeypatch):
    monkeypatch.setattr(founding, "SILENCE", 0.1)
    caller = Caller(_core.token_of(SECRET.encode()), "auto")
    door = caller.open_door(_core.Listener("127.0.0.1", 0))
    host, port = door.endpoint
    asked = []

    def answer() -> None:
        line = door.answer(round(1e3 * LIMIT))
        asked.append(hear_within(line, LIMIT)["say"])
        time.sleep(0.5)  # five times as long as a member would wait
        say(line, {"say": "refused", "code": "Mismatch", "why": "this is the answer"})

    member = threading.Thread(target=answer)
    member.start()
    with pytest.raises(deltawire.DeltawireError, match="this is the answer"):
        deltawire.Session(
            "3lc", address=f"{host}:{port}", elastic=True, token=SECRET, connect_timeout=20.0
        )
    member.join()
    assert asked == ["join"]


def test_what_asks_whether_to_go_on_connecting_may_end_it():
    def ends(asked) -> deltawire.DeltawireError | ZeroDivisionError:
        listener = _core.Listener("127.0.0.1", 0)
        mesh = _core.Mesh.at(listener.endpoint, 0, 2, _core.token_of(SECRET.encode()))
        mesh.connect_timeout_ms = round(1e3 * LIMIT)
        mesh.set_interrupted(asked)
        with pytest.raises((deltawire.DeltawireError, ZeroDivisionError)) as caught:
            _core.Session(listener, mesh, "fp32", _core.ReducerOptions(256, "exact"))
        return caught.value

    assert ends(lambda: True).code == "Aborted"
    assert isinstance(ends(lambda: 1 // 0), ZeroDivisionError)
