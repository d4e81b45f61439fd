"""lab/papers/gcomp/significance_claim.py on a tiny image set."""

import json

import pytest

claim = pytest.importorskip("lab.papers.gcomp.significance_claim")


def rows_of(folder, path, *more):
    status = claim.main(["--data", str(folder), "--batch", "16", "--json", str(path), *more])
    assert status == 0
    return json.loads(path.read_text())["rows"]


def test_every_optimizer_keeps_its_weights_and_a_uniform_cut_does_not(image_folder, tmp_path):
    rows = rows_of(image_folder, tmp_path / "a.json", "--steps", "4")
    assert len(rows) == 3 * 7
    by = {(row["optimizer"], row["gradients"]): row for row in rows}
    for optimizer in claim.OPTIMIZERS:
        auto, uniform = by[optimizer, "auto"], by[optimizer, "cut=18"]
        assert 0 < auto["one_step_gap"] < 1e-7, auto  # half a unit in the last place of a weight
        assert uniform["one_step_gap"] > 30 * auto["one_step_gap"], uniform
        assert uniform["bytes_sent"] < auto["bytes_sent"], "nothing is left to save"
        assert auto["times_smaller"] > 1.1


def test_the_same_command_gives_the_same_numbers(image_folder, tmp_path):
    arguments = ("--steps", "2", "--optimizers", "Adam", "Nesterov")
    first = rows_of(image_folder, tmp_path / "a.json", *arguments)
    assert first == rows_of(image_folder, tmp_path / "b.json", *arguments)


def test_missing_data_is_one_line(tmp_path, capsys):
    assert claim.main(["--data", str(tmp_path), "--json", str(tmp_path / "x.json")]) == 1
    assert str(tmp_path) in capsys.readouterr().err
