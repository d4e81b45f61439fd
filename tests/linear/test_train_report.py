"""`deltawire train linear --report`, and the same figures in `--json`."""

import json
import re
import xml.etree.ElementTree
from pathlib import Path

import pytest
from cli_program import must_run
from linear_rows import text_of

PARTS = ("compute", "encode", "exchange", "decode", "update", "checkpoint")


@pytest.mark.parametrize("workers", [1, 2])
def test_the_page_shows_losses_and_where_the_time_went(workers: int, tmp_path: Path) -> None:
    data, page, kept = (tmp_path / name for name in ("rows.libsvm", "report.html", "kept"))
    data.write_text(text_of(2000))
    report = json.loads(
        must_run(
            *("train", "linear", "--data", data, "--workers", workers, "--epochs", 4, "--stop", 0),
            *("--batch", 0.1, "--hash-bits", 10, "--checkpoint", kept),
            *("--report", page, "--json", "-"),
        )
    )
    split = report["time_split"]
    assert split["seconds"] == report["final"]["seconds"]
    for part in PARTS:
        seconds = [epoch[f"{part}_seconds"] for epoch in report["epochs"]]
        assert split[f"{part}_seconds"] == pytest.approx(sum(seconds))
        assert (split[f"{part}_seconds"] > 0) or workers == 1
    assert sum(split[f"{part}_seconds"] for part in PARTS) < 1.001 * split["seconds"]
    sent = [epoch["bytes_sent"] for epoch in report["epochs"]]
    per_epoch = [10 * epoch["bytes_per_step"] for epoch in report["epochs"]]
    assert sent == pytest.approx([sum(per_epoch[: i + 1]) for i in range(len(per_epoch))])
    if workers > 1:  # each pair would take 8 bytes
        first = report["epochs"][0]
        plain = first["times_smaller_than_plain_pairs"] * workers * first["bytes_sent"]
        assert plain > 0 and plain % 8 == pytest.approx(0, abs=1e-3)

    text = page.read_text()
    assert 'content="width=device-width, initial-scale=1"' in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")  # all is in the page
    figures = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
    assert len(figures) == (2 if workers > 1 else 1)
    for figure in figures:
        width, height = _check_figure(figure, points=2 * len(report["epochs"]))
        assert width <= 360 and height <= 360  # in a phone's width letters keep their size
    assert ("Loss against bytes" in text) == (workers > 1)
    for label in (
        "computing gradients",
        "sending and waiting",
        "updating the model",
        "checkpoints",
    ):
        assert label in text
    assert "&quot;codec&quot;: &quot;fastsgd&quot;" in text


def _check_figure(figure: str, points: int) -> tuple[float, float]:
    """Its size. All points of its curves lie on its sheet."""
    root = xml.etree.ElementTree.fromstring(figure)
    width, height = map(float, root.get("viewBox").split()[2:])
    circles = [each for each in root.iter() if each.tag.endswith("circle")]
    assert len(circles) == points
    for circle in circles:
        assert 40 < float(circle.get("cx")) < width and 20 < float(circle.get("cy")) < height
    return width, height
