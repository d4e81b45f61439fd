"""federated.md: its program runs, its two lines are the example's, its refusals the code's."""

import re
from pathlib import Path

import numpy as np
import pytest
from deltawire import rounds

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guides" / "federated.md").read_text()


def test_the_program_runs():
    program = re.search(r"```python\n(from deltawire import rounds\n\nserver.*?)```", PAGE, re.S)[1]
    momentum = {"conv": np.ones((20, 30), np.float32)}
    known = {
        "model": {"conv": np.zeros((20, 30), np.float32)},
        "train": lambda weights: {"conv": weights["conv"] + np.linspace(0, 1, 600).reshape(20, 30)},
        "momentum": momentum,
    }
    exec(program, known)
    assert (known["model"]["conv"] != 0).sum() == 6 == (momentum["conv"] == 0).sum()


def test_rules_that_know_the_round_run_with_ranks_too(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import deltawire.torch

    program = re.search(r"```python\n(spec, steps = .*?)```", PAGE, re.S)[1]
    store = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        model = torch.nn.Linear(40, 50)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        known = {"rounds": rounds, "deltawire": deltawire, "model": model, "optimizer": optimizer}
        exec(program, known)
        with known["trainer"] as trainer:
            for _ in range(100):
                model(torch.ones(40)).sum().backward()
                trainer.step()
            assert (trainer.round, trainer.local_steps) == (1, 0)
    finally:
        torch.distributed.destroy_process_group()


def test_the_two_lines_are_the_examples():
    diff = re.search(r"```diff\n(.*?)```", PAGE, re.S)[1]
    added = re.findall(r"^\+(\w.*)$", diff, re.M)
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
        "its records or metrics have other names or kinds than the others'",
        "times the median of the round's",
        " is beyond what ",
        "; return finite metrics",
        "the header of the reply is too long",
        "; the round goes on",
    ):
        assert words in PAGE and words in code, words


def test_watching_is_as_the_page_shows_it(tmp_path):
    program = re.search(r"```python\n(from deltawire import rounds\n\nboard.*?)```", PAGE, re.S)[1]
    assert "rounds.live_line" in program and callable(rounds.live_line)
    line = rounds.Seen(
        "train", 1, 200, 174, 6, 20, 2_166_081, 97_270, 38_073_200, {"loss": 1.961}
    ).line()
    assert line in PAGE
