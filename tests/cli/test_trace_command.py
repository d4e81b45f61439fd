"""`deltawire trace`, and traces as input of `deltawire compare`."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_program import assert_refused, must_run
from trace_folder import make_trace

USAGE, FAILURE = 2, 1
VALUES = [5240, 5200, 5240]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    make_trace(folder)
    return folder


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, np.ndarray]]:
    return make_trace(tmp_path_factory.mktemp("dense"))


def info(folder: Path) -> dict:
    return json.loads(must_run("trace", "info", folder, "--json"))


def replay(folder: Path, *arguments: object) -> list[dict]:
    return json.loads(must_run("trace", "replay", folder, "--json", "--codec", *arguments))["steps"]


def bf16(values: np.ndarray) -> np.ndarray:
    """Rounded to the upper half of each float32, ties to even."""
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    return rounded.astype(np.uint32).view(np.float32)


def relative(error: list[np.ndarray], whole: list[np.ndarray]) -> float:
    return np.linalg.norm(np.concatenate(error)) / np.linalg.norm(np.concatenate(whole))


def test_info_is_what_numpy_counts(trace: Path, dense: list[dict[str, np.ndarray]]) -> None:
    found = info(trace)
    assert (found["model"], found["optimizer"]) == ("toy", "SGD, lr=0.1")
    assert [step["step"] for step in found["steps"]] == [10, 20, 400]
    for step, gradients in zip(found["steps"], dense, strict=True):
        values = np.concatenate(list(gradients.values())).astype(np.float64)
        assert step["values"] == len(values)
        assert step["zero_share"] == pytest.approx((values == 0).mean())
        assert step["largest"] == pytest.approx(np.abs(values).max())
        assert step["norm"] == pytest.approx(np.linalg.norm(values))
        assert step["pairs"] == 100
    assert found["steps"][1]["tensors"][1] is None
    weight, bias, embedding = found["tensors"]
    assert (weight["gradients"], bias["gradients"], embedding["gradients"]) == (3, 2, 3)
    assert (weight["with_significance"], bias["with_significance"]) == (3, 0)
    assert embedding["pairs_form"] and embedding["shape"] == [500, 8]
    everything = np.concatenate([gradients["fc.weight"] for gradients in dense])
    assert weight["norm"] == pytest.approx(np.linalg.norm(everything))


def test_info_for_people(trace: Path) -> None:
    said = must_run("trace", "info", trace).decode()
    for word in ("3 tensors, 3 steps", "model: toy", "fc.weight (40, 30)", "step 400", "300 pairs"):
        assert word in said


def test_names_steer_no_terminal(tmp_path: Path) -> None:
    make_trace(tmp_path)
    text = (tmp_path / "trace.json").read_text()
    (tmp_path / "trace.json").write_text(text.replace("fc.bias", "fc\\u001b[2J\\nbias"))
    for command in (["info", tmp_path], ["info", tmp_path, "--json"]):
        assert b"\x1b" not in must_run("trace", *command)


def test_replay_without_error_feedback(trace: Path, dense: list[dict[str, np.ndarray]]) -> None:
    errors, sums = {}, {}
    for step, gradients in zip(replay(trace, "bf16", "--min-elements", 0), dense, strict=True):
        now = {name: bf16(values).astype(np.float64) - values for name, values in gradients.items()}
        values = list(gradients.values())
        assert step["values"] == sum(map(len, values))
        assert step["bits_per_value"] == pytest.approx(16, abs=0.2)
        assert step["bytes"] == pytest.approx(step["bits_per_value"] * step["values"] / 8)
        assert step["relative_l2"] == pytest.approx(relative(list(now.values()), values), rel=1e-6)
        for name, error in now.items():
            errors[name] = errors.get(name, 0) + error
            sums[name] = sums.get(name, 0) + gradients[name].astype(np.float64)
        so_far = relative(list(errors.values()), list(sums.values()))
        assert step["relative_l2_so_far"] == pytest.approx(so_far, rel=1e-6)
        assert step["residual_norm"] == 0


def test_replay_with_error_feedback(trace: Path, dense: list[dict[str, np.ndarray]]) -> None:
    steps = replay(trace, "int8")
    assert [step["step"] for step in steps] == [10, 20, 400]
    assert [step["values"] for step in steps] == VALUES
    sums: dict[str, np.ndarray] = {}
    for step, gradients in zip(steps, dense, strict=True):
        for name, values in gradients.items():
            sums[name] = sums.get(name, 0) + values.astype(np.float64)
        whole = np.linalg.norm(np.concatenate(list(sums.values())))
        # The residuals are what is missing from the sums.
        missing = step["relative_l2_so_far"] * whole
        assert 0 < missing == pytest.approx(step["residual_norm"], rel=1e-3)


def test_replay_of_several_ranks(trace: Path) -> None:
    spec = "randomk:k=0.5,unbiased=on"
    alone, together = (replay(trace, spec, "--ranks", ranks) for ranks in (1, 25))
    for one, many in zip(alone, together, strict=True):
        assert many["relative_l2"] == pytest.approx(one["relative_l2"] / 5, rel=0.25)
        assert many["bytes"] == pytest.approx(one["bytes"], rel=0.01)


def test_replay_for_people(trace: Path) -> None:
    said = must_run("trace", "replay", trace, "--codec", "fc*: int8, rest fp32").decode()
    assert "fc*: int8, rest fp32" in said
    assert [line.split()[0] for line in said.splitlines()[3:]] == ["10", "20", "400"]


def test_rules_see_names_and_steps(trace: Path) -> None:
    steps = replay(trace, "step>=20: bf16, emb*: fp32, rest bf16", "--min-elements", 0)
    bits = [step["bits_per_value"] for step in steps]
    assert bits[1:] == pytest.approx([16, 16], abs=0.2)
    first = (16 * 1240 + 32 * 4000) / 5240
    # The pairs are coded as pairs: 4,000 values.
    assert bits[0] == pytest.approx(first, abs=0.3)


def test_compare_takes_every_step(trace: Path, dense: list[dict[str, np.ndarray]]) -> None:
    arguments = ["--input", trace, "--codecs", "all", "--quick", "--min-elements", 0, "--json", "-"]
    found = json.loads(must_run("compare", *arguments))
    (facts,) = found["inputs"]
    assert (facts["steps"], facts["tensors"], facts["pairs"]) == (3, 3, 300)
    assert facts["values"] == sum(VALUES)
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
def test_every_command_names_what_is_wrong(
    tmp_path: Path, old: str, new: str, words: list[str]
) -> None:
    make_trace(tmp_path)
    spoil(tmp_path, old, new)
    assert_refused(FAILURE, words, "trace", "info", tmp_path)
    assert_refused(FAILURE, words, "compare", "--input", tmp_path)
    assert_refused(FAILURE, words, "trace", "replay", tmp_path, "--codec", "fp32", "--json")


def test_pairs_too_many_to_lay_out(tmp_path: Path) -> None:
    make_trace(tmp_path)
    spoil(tmp_path, "[500, 8]", "[4294967295]")
    assert info(tmp_path)["tensors"][2]["values"] == 3 * (2**32 - 1)
    words = ["emb.weight", "4,294,967,295 elements"]
    assert_refused(FAILURE, words, "compare", "--input", tmp_path)


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["trace"], ["trace", "subcommand"]),
        (["trace", "inf", "x"], ["trace"]),
        (["trace", "info"], ["FOLDER"]),
        (["trace", "replay", "x"], ["--codec"]),
        (["trace", "replay", "x", "--codec", "4lc"], ["--codec", "4lc", "3lc"]),
        (["trace", "replay", "x", "--codec", "3lc", "--ranks", "0"], ["--ranks"]),
    ],
)
def test_bad_usage(arguments: list[str], words: list[str]) -> None:
    assert_refused(USAGE, words, *arguments)


def test_value_that_a_codec_refuses(tmp_path: Path) -> None:
    make_trace(tmp_path)
    spoilt = np.full((40, 30), np.nan, np.float32)
    np.save(tmp_path / "000020" / "0.npy", spoilt)
    replayed = ["trace", "replay", tmp_path, "--codec", "int8", "--json"]
    assert_refused(FAILURE, ["step 20", "fc.weight", "NaN"], *replayed)
