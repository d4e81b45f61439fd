"""SBC's table 3 in small: rows train, are counted by their bytes, and are kept."""

import json

import numpy as np
import pytest

from lab.papers.sbc import federated


@pytest.mark.parametrize("split", ["iid", "two"])
def test_rows_train_and_are_kept(split, image_folder, tmp_path, capsys):
    options = [
        "--data",
        str(image_folder),
        "--out",
        str(tmp_path),
        "--clients",
        "4",
        "--batch",
        "4",
    ]
    options += ["--iterations", "2", "--split", split, "--rows", "SBC (2)", "baseline"]
    assert federated.main(options) == 0
    assert "SBC (2): 2 iterations" in capsys.readouterr().out
    (kept,) = json.loads((tmp_path / "rows.json").read_text()).values()
    assert 0.99 < kept["baseline"]["smaller"] <= 1.0
    assert kept["SBC (2)"]["smaller"] > 300
    assert (tmp_path / "accuracy-bytes.svg").stat().st_size > 1000
    assert federated.main(options) == 0
    assert "iterations" not in capsys.readouterr().out


def test_two_classes_a_client_and_every_example_once():
    labels = np.repeat(np.arange(10), 40)
    given = federated.parse(["--clients", "20", "--split", "two"])
    shares = federated.examples_of(labels, given)
    assert sorted(np.concatenate(shares)) == list(range(400))
    assert all(len(share) == 20 and len(set(labels[share])) <= 2 for share in shares)
