"""The bytes of federated rounds in small: counted by kind, with and without patches, and kept."""

import json

from lab.probes import federated_bytes


def test_rows_are_counted_by_kind_and_kept(image_folder, tmp_path, capsys):
    options = ["--data", str(image_folder), "--out", str(tmp_path), "--up", "topk:k=0.1%"]
    options += ["--clients", "4", "--sampled", "2", "--rounds", "4", "--steps", "1", "--batch", "4"]
    assert federated_bytes.main(options) == 0
    table = capsys.readouterr().out
    assert table.count("| `topk:k=0.1%` |") == 4
    (rows,) = json.loads((tmp_path / "rows.json").read_text()).values()
    for name, row in rows.items():
        model_bytes = 431_080 * (2 if name.endswith("bfloat16") else 4)
        assert sum(row["counts"].values()) == 8
        assert abs(row["sent"]["full"] / row["counts"]["full"] / model_bytes - 1) < 0.001
        assert row["up_bytes"] < 8 * 6_000
        if row["down"] == "none":
            assert row["sent"]["patch"] / row["counts"]["patch"] < 0.05 * model_bytes
            assert row["before"].keys() == {"full"}
        else:
            assert row["before"].keys() == row["sent"].keys() == {"full", "delta"}
    exact = rows["topk:k=0.1%, 3lc, float32"]
    assert exact["before"] == exact["sent"]
    assert (tmp_path / "accuracy-bytes.svg").stat().st_size > 1000
    assert federated_bytes.main(options) == 0
    assert "rounds," not in capsys.readouterr().out
