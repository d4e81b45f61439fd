"""scripts/bench_compare.py and the table of bench/coding.py."""

import importlib.util
import json
from pathlib import Path

import deltawire
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def loaded(path: str):
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results(rows: dict[str, float]) -> dict:
    benchmarks = [
        {
            "name": f"{name}/iterations:31/manual_time",
            "xC": xc,
            "GB/s": 10 * xc,
            "ns": 0.1,
            "bits": 2,
        }
        for name, xc in rows.items()
    ]
    return {
        "context": {"cpu": "a CPU", "pages": "usual", "copy of 1M": "10.0 GB/s"},
        "benchmarks": benchmarks,
    }


@pytest.fixture
def compared(tmp_path, capsys):
    def run(old: dict[str, float], new: dict[str, float], *options: str) -> str:
        for name, rows in (("old", old), ("new", new)):
            (tmp_path / f"{name}.json").write_text(json.dumps(results(rows)))
        files = [str(tmp_path / "old.json"), str(tmp_path / "new.json")]
        assert loaded("scripts/bench_compare.py").main([*files, *options]) == 0
        return capsys.readouterr().out

    return run


def test_the_largest_loss_comes_first(compared):
    text = compared({"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 1.2, "b": 0.5, "c": 1.04})
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert rows == ["| b | 1.000 | 0.500 | 0.50 |", "| a | 1.000 | 1.200 | 1.20 |"]


def test_rows_that_only_one_run_has_are_named(compared):
    text = compared({"a": 1.0, "b": 1.0}, {"a": 1.0, "c": 1.0})
    assert "gone: b" in text
    assert "new: c" in text


def test_only_rows_that_match(compared):
    text = compared({"a/1M": 1.0, "b/4K": 1.0}, {"a/1M": 2.0, "b/4K": 2.0}, "--match", "1M")
    assert "a/1M" in text
    assert "b/4K" not in text


def test_files_without_results_are_refused(tmp_path):
    (tmp_path / "empty.json").write_text("")
    with pytest.raises(SystemExit, match="is not a file of results"):
        loaded("scripts/bench_compare.py").main([str(tmp_path / "empty.json")] * 2)


def test_the_table_has_a_line_for_each_row_and_names_the_machine():
    text = loaded("bench/coding.py").table(results({"encode/3lc/normal/1M/avx2": 0.5}))
    assert "CPU: a CPU" in text
    assert "1M 10.0 GB/s" in text
    assert "| encode | 3lc | normal | 1M | avx2 | 5.00 | 0.500 | 0.100 | 2.000 |" in text


def test_a_row_that_failed_ends_the_report():
    failed = results({"encode/3lc/normal/1M/avx2": 0.5})
    failed["benchmarks"][0] |= {"error_occurred": True, "error_message": "other bytes"}
    with pytest.raises(SystemExit, match="other bytes"):
        loaded("bench/coding.py").table(failed)


def test_a_traces_largest_tensors_are_measured():
    folder = ROOT / "tests" / "traces" / "logistic-sgd"
    values = loaded("bench/coding.py").values_of(folder)
    expected = [step.gradients[0].values for step in deltawire.read_trace(folder)]
    np.testing.assert_array_equal(values, np.concatenate(expected))
    dense = loaded("bench/coding.py").values_of(folder.parent / "lenet5-sgd")
    assert len(dense) == 3 * 800 * 32  # fc1.weight
