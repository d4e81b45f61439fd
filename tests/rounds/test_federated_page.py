"""docs/federated.md: its program runs, its two lines are the example's, its refusals the code's."""

import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "federated.md").read_text()


def test_the_program_runs():
    program = re.search(r"```python\n(from deltawire import rounds.*?)```", PAGE, re.S)[1]
    momentum = {"conv": np.ones((20, 30), np.float32)}
    known = {
        "model": {"conv": np.zeros((20, 30), np.float32)},
        "train": lambda weights: {"conv": weights["conv"] + np.linspace(0, 1, 600).reshape(20, 30)},
        "momentum": momentum,
    }
    exec(program, known)
    assert (known["model"]["conv"] != 0).sum() == 6 == (momentum["conv"] == 0).sum()


def test_the_two_lines_are_the_examples():
    added = re.findall(r"^\+(\w.*)$", PAGE, re.M)
    app = ROOT / "examples" / "flower" / "compressed_app"
    text = (app / "client_app.py").read_text() + (app / "server_app.py").read_text()
    assert len(added) == 2
    assert all(line in text for line in added)


def test_the_refusals_are_said_so():
    code = "".join(path.read_text() for path in (ROOT / "python" / "deltawire").rglob("*.py"))
    for words in (
        "has values that are not finite",
        ", above max_norm=",
        "; due is round ",
        "ArrayRecords; deltawire carries one",
        "is not a whole number, 1 ... ",
        "its records or metrics are named otherwise than the others'",
        "; the round goes on",
    ):
        assert words in PAGE and words in code, words
