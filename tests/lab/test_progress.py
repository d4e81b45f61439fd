"""The demo's progress: lines in a log, and one line that changes on a terminal."""

import sys

import pytest

from lab.demo.progress import Progress

DONE = {"failed": None, "accuracy": 0.8, "ms_per_step": 30.0, "wire_mb_per_rank": 2.0}


@pytest.mark.parametrize("terminal", [False, True])
def test_a_log_has_points_and_a_terminal_every_step(terminal: bool, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    progress = Progress(steps=20, count=2)
    progress.started("fp32")
    progress.news({"event": "step", "step": 5, "ms_per_step": 31.0})
    progress.news({"event": "point", "step": 10, "accuracy": 0.5})
    progress.ended(DONE)
    progress.started("3LC")
    progress.ended({"failed": "it hung"})
    said = capsys.readouterr().err
    assert ("[1/2] fp32: step 5/20, accuracy 0.000, 31 ms/step" in said) == terminal
    assert "[1/2] fp32: step 10/20, accuracy 0.500, 31 ms/step, about 0 min left" in said
    assert "[1/2] fp32: accuracy 0.8000, 30.0 ms/step, 2.0 MB sent per rank\n" in said
    assert "[2/2] 3LC: failed: it hung\n" in said
    assert said.count("\n") == (2 if terminal else 5)
