"""Models after the same number of steps with different codecs."""

import json
from pathlib import Path

import pytest

equal_steps = pytest.importorskip("lab.probes.equal_steps")


def test_codecs_train_and_exact_ones_change_nothing(tmp_path: Path, capsys):
    file = tmp_path / "rows.json"
    words = "lenet5 --ranks 2 --steps 6 --seeds 3 --methods plain ring(fp32) 3lc"
    assert equal_steps.main([*words.split(), "--json", str(file)]) == 0
    plain, fp32, lossy = json.loads(file.read_text())
    assert plain["loss"] == pytest.approx(fp32["loss"], rel=1e-4) != lossy["loss"]
    assert all(
        0.1 < row["accuracy"] < 0.8 and 1 < row["loss"] < 2.4 for row in (plain, fp32, lossy)
    )
    # Six steps of 431,080 values, each sent once by each of two ranks.
    assert lossy["sent_mb"] < 1 < 10 < fp32["sent_mb"] < 11
    assert "| `ring(fp32)` |" in capsys.readouterr().out


def test_an_unknown_codec_is_refused_before_anything_runs(capsys):
    with pytest.raises(SystemExit, match="2"):
        equal_steps.main(["lstm", "--methods", "nonsense"])
    assert "method 'nonsense'" in capsys.readouterr().err


def test_sizes_without_held_out_data_are_refused_before_anything_runs(capsys):
    with pytest.raises(SystemExit, match="2"):
        equal_steps.main(["lenet5", "--size", "small"])
    assert "--size" in capsys.readouterr().err


def test_points_are_between_medians():
    def row(method: str, seed: int, accuracy: float):
        return equal_steps.Row(method, seed, 1.0, accuracy, 2.0)

    rows = [row(m, s, a) for s, a in ((1, 0.5), (2, 0.9), (3, 0.6)) for m in ("plain",)]
    rows += [row("int8", seed, accuracy) for seed, accuracy in ((1, 0.62), (2, 0.1), (3, 0.7))]
    assert equal_steps.table_of(rows).splitlines()[2:] == [
        "| `plain` | 1.000 | 60.0 (50.0, 90.0, 60.0) | +0.0 | 2.00 |",
        "| `int8` | 1.000 | 62.0 (62.0, 10.0, 70.0) | +2.0 | 2.00 |",
    ]
