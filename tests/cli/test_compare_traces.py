"""Traces as input of `deltawire compare`."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_program import FAILURE, assert_refused, must_run
from trace_folder import make_trace

VALUES = [5240, 5200, 5240]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    make_trace(folder)
    return folder


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, np.ndarray]]:
    return make_trace(tmp_path_factory.mktemp("dense"))


def compared(folder: Path, *arguments: object) -> dict:
    command = ["compare", "--input", folder, "--quick", "--min-elements", 0, "--json", "-"]
    return json.loads(must_run(*command, "--codecs", *arguments))


def bf16(values: np.ndarray) -> np.ndarray:
    """Rounded to the upper half of each float32, ties to even."""
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    return rounded.astype(np.uint32).view(np.float32)


def relative(error: list[np.ndarray], whole: list[np.ndarray]) -> float:
    return np.linalg.norm(np.concatenate(error)) / np.linalg.norm(np.concatenate(whole))


def test_what_is_counted_is_what_numpy_counts(
    trace: Path, dense: list[dict[str, np.ndarray]]
) -> None:
    (facts,) = compared(trace, "fp32")["inputs"]
    values = np.concatenate([each for step in dense for each in step.values()]).astype(np.float64)
    assert (facts["steps"], facts["tensors"], facts["pairs"]) == (3, 3, 300)
    assert facts["values"] == len(values) == sum(VALUES)
    assert facts["zeros"] == (values == 0).sum()
    assert facts["largest"] == pytest.approx(np.abs(values).max())
    assert facts["norm"] == pytest.approx(np.linalg.norm(values))


def test_names_steer_no_terminal(tmp_path: Path) -> None:
    make_trace(tmp_path)
    np.save(tmp_path / "000020" / "0.npy", np.full((40, 30), np.nan, np.float32))
    spoil(tmp_path, "fc.weight", "fc\\u001b[2J\\nweight")
    for more in ([], ["--json", "-"]):
        said = must_run("compare", "--input", tmp_path, "--quick", "--codecs", "int8", *more)
        assert b"\x1b" not in said and b"NaN" in said


def test_rules_see_names_and_steps(trace: Path) -> None:
    (row,) = compared(trace, "step>=20: bf16, emb*: fp32, rest bf16")["rows"]
    # The pairs are coded as pairs, 4,000 values; those of the first step as float32.
    assert row["bits_per_value"] == pytest.approx(16 + 16 * 4000 / sum(VALUES), abs=0.3)


def test_compare_takes_every_step(trace: Path, dense: list[dict[str, np.ndarray]]) -> None:
    found = compared(trace, "all")
    assert [row["method"] for row in found["rows"] if row["failed"]] == []
    row = next(row for row in found["rows"] if row["method"] == "bf16")
    values = [values for gradients in dense for values in gradients.values()]
    errors = [bf16(each).astype(np.float64) - each for each in values]
    assert row["relative_l2"] == pytest.approx(relative(errors, values), rel=1e-6)
    magnitude = np.abs(np.concatenate(values).astype(np.float64)).sum()
    assert row["bias"] == pytest.approx(np.concatenate(errors).sum() / magnitude, abs=1e-12)


def test_significance_reaches_the_codecs_that_use_it(trace: Path, tmp_path: Path) -> None:
    make_trace(tmp_path)
    contents = json.loads((tmp_path / "trace.json").read_text())
    for step in contents["steps"]:
        del step["tensors"][0]["significance"]
    (tmp_path / "trace.json").write_text(json.dumps(contents))
    bits = {}
    for folder in (trace, tmp_path):
        arguments = ["--codecs", "gcomp", "bf16", "--quick", "--json", "-"]
        rows = json.loads(must_run("compare", "--input", folder, *arguments))["rows"]
        bits[folder] = [row["bits_per_value"] for row in rows]
    assert bits[trace][0] < bits[tmp_path][0] and bits[trace][1] == bits[tmp_path][1]


def spoil(folder: Path, old: str, new: str) -> None:
    text = (folder / "trace.json").read_text()
    assert old in text
    (folder / "trace.json").write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    "old,new,words",
    [
        ('"format": 1', '"format": 2', ["trace.json", "format is 2"]),
        ("000010/0.npy", "../0.npy", ["steps[0].tensors[0].values", "../0.npy"]),
        ("000010/0.npy", "000010/9.npy", ["000010/9.npy", "no such file"]),
        ("[40, 30]", "[30, 40]", ["000010/0.npy", "(40, 30)", "(30, 40)"]),
        ("[500, 8]", "[5, 8]", ["000010/2.keys.npy", "40 elements"]),
        ('"step": 20', '"step": 5', ["steps[1].step", "grow"]),
        ('"steps"', '"stops"', ["steps must be a list"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    make_trace(tmp_path)
    spoil(tmp_path, old, new)
    assert_refused(FAILURE, words, "compare", "--input", tmp_path)


def test_pairs_too_many_to_lay_out(tmp_path: Path) -> None:
    make_trace(tmp_path)
    spoil(tmp_path, "[500, 8]", "[4294967295]")
    words = ["emb.weight", "4,294,967,295 elements"]
    assert_refused(FAILURE, words, "compare", "--input", tmp_path)
