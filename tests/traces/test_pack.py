"""The recorded traces next to this file are whole, and what their README says of them."""

from pathlib import Path

import deltawire
import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
README = (HERE / "README.md").read_text(encoding="utf-8")
TRACES = ("lenet5-sgd", "logistic-sgd")


def test_readme_names_them():
    assert sorted(path.parent.name for path in HERE.glob("*/trace.json")) == list(TRACES)
    assert all(f"`{name}`" in README for name in TRACES)


def test_they_stay_small():
    assert sum(path.stat().st_size for path in HERE.rglob("*") if path.is_file()) < 3_000_000


@pytest.mark.parametrize("name", TRACES)
def test_every_array_is_whole_and_finite(name):
    trace = deltawire.read_trace(HERE / name)
    count = sum(tensor.count for tensor in trace.tensors)
    (row,) = [line for line in README.splitlines() if line.startswith(f"| `{name.split('-')[0]}-")]
    assert f"| {count:,} |" in row
    assert f"{count:,} parameters, 300 steps, seed 1" in trace.model
    assert trace.command.endswith("-m lab.traces all --size small --out tests/traces")
    assert trace.step_numbers == (5, 100, 300)
    for step in trace:
        for gradient in step.gradients:
            assert np.isfinite(gradient.values).all()
            assert gradient.values.any()
            assert (gradient.keys is not None) == name.startswith("logistic")
            assert gradient.significance is not None
