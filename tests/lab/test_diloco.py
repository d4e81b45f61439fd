"""The comparison of DiLoCo with DDP: a row for every method, and what is refused."""

import json
from pathlib import Path

import pytest

from lab.papers.diloco import __main__ as diloco

TEXT = "To be, or not to be, that is the question: " * 60


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "shakespeare" / "input.txt").write_text(TEXT)
    monkeypatch.setenv("DELTAWIRE_DATA", str(tmp_path))
    return tmp_path


def test_a_row_for_every_method(folder, capsys):
    file = folder / "rows.json"
    sizes = "--ranks 2 --steps 8 --every 4 --width 16 --layers 1 --link none --lr 0.01"
    assert diloco.main([*sizes.split(), "--json", str(file)]) == 0
    rows = json.loads(file.read_text())
    assert [(row["method"], row["spec"].startswith("direct(fp32")) for row in rows] == [
        (method.name, "fp32" in method.spec) for method in diloco.training.METHODS
    ]
    ddp, compressed, local, plain, *others = rows
    for row in rows:
        assert 1 < row["loss"] < 3.2 and row["seconds"] > 0
        assert (row["hidden"] is None) == (row["method"] == "DDP")
    # Eight gradients or two changes, of 13 KB each; headers, and the traffic at a step's end.
    assert ddp["sent_mb"] > 3 * local["sent_mb"] and local["sent_mb"] == pytest.approx(
        plain["sent_mb"], rel=0.05
    )
    assert all(row["sent_mb"] < plain["sent_mb"] / 2 for row in others)
    assert local["loss"] != plain["loss"], "the outer optimizer did nothing"
    shown = capsys.readouterr().out
    assert shown.count("\n") == len(rows) + 2 and "| DiLoCo, delayed | `direct(3lc)` |" in shown
    page = (
        Path(__file__).resolve().parents[2] / "docs/results/training/local-steps.md"
    ).read_text()
    for line in shown.splitlines():
        assert line.rsplit("` |")[0] in page, "local-steps.md has another table"


def test_a_text_that_is_too_short_is_refused(folder, capsys):
    (folder / "shakespeare" / "input.txt").write_text("To be")
    assert diloco.main([]) == 1
    assert "5 characters" in capsys.readouterr().err
