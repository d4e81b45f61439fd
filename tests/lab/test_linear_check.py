"""linear_check: each codec's training compared with plain pairs, on a small data set."""

import lzma
from pathlib import Path

import numpy as np
import pytest

linear_check = pytest.importorskip("lab.papers.fastsgd.linear_check")
linear_codecs = pytest.importorskip("lab.papers.fastsgd.linear_codecs")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data of one set, "tiny": 600 rows of 300 features, whose labels a planted model gave."""
    random = np.random.default_rng(3)
    planted = random.normal(size=300)
    lines = []
    for _ in range(600):
        columns = np.sort(random.choice(300, 20, replace=False))
        label = 1 if planted[columns].sum() > 0 else -1
        lines.append(" ".join([str(label), *(f"{column + 1}:1" for column in columns)]))
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "tiny.xz").write_bytes(lzma.compress("\n".join(lines).encode()))
    monkeypatch.setenv("DELTAWIRE_DATA", str(tmp_path))
    return tmp_path


def test_codecs_are_compared_with_plain_pairs(folder: Path, capsys):
    words = ["--codec", "plain", "--codec", "fastsgd", "--seeds", "2", "--epochs", "2", "tiny"]
    assert linear_check.main(words) == 0
    head, rule, *rows = capsys.readouterr().out.splitlines()
    assert [head, rule] == linear_codecs.head()
    assert len(rows) == len(linear_codecs.LOSSES) * 2
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    by_loss = {tuple(row[1:3]): row for row in cells}
    for loss in linear_codecs.LOSSES:
        plain, fastsgd = by_loss[loss, "`plain`"], by_loss[loss, "`fastsgd`"]
        assert float(plain[7]) == 1 < float(fastsgd[7])
        assert float(fastsgd[6]) < float(plain[6])
        assert loss == "squared" or float(fastsgd[4].split()[0]) > 50


def test_the_median_is_given_with_the_lowest_and_the_highest():
    finals = [{"accuracy": share} for share in (0.9, 0.7, 0.8)]
    assert linear_codecs.spread(finals, "accuracy", 100, 1) == "80.0 (70.0–90.0)"


def test_a_set_that_is_not_there_is_one_line(folder: Path, capsys):
    assert linear_check.main(["--codec", "all", "nothing"]) == 1
    said = capsys.readouterr().err
    assert "has no nothing.xz; set DELTAWIRE_DATA" in said and said.count("\n") == 1


def test_what_is_judged_is_the_objective_of_the_weights_written(folder: Path):
    """The part of the table that needs no scikit-learn."""
    path = linear_check.find_set("tiny")
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    rows, labels = np.zeros((len(lines), 302)), np.zeros(len(lines))
    for row, line in enumerate(lines):
        label, *features = line.split()
        labels[row] = float(label)
        rows[row, [int(feature.split(":")[0]) for feature in features]] = 1
    rows[:, -1] = 1
    for loss in linear_check.LOSSES:
        weights, report = linear_check.train(path, "tiny", loss, workers=1)
        found = linear_check.objective(loss, rows, labels, weights)
        assert found == pytest.approx(report["final"]["objective"], rel=1e-5)
        assert found < linear_check.objective(loss, rows, labels, 0 * weights) / 1.2
        assert report["gap_is_bound"] == (loss != "hinge")
