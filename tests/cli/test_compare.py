"""`deltawire compare`: its figures are those that NumPy finds, and every method has a row."""

import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cli_program import (
    BINARY,
    FAILURE,
    INTERRUPTED,
    TIMEOUT,
    USAGE,
    assert_refused,
    decode,
    encode,
    must_run,
    run,
    shown_on_terminal,
)

COUNT = 5000


def listed_specs() -> list[str]:
    codecs = json.loads(must_run("codecs", "--json"))["codecs"]
    return [spec for codec in codecs for spec in [codec["name"], *codec["examples"]]]


def gradient() -> np.ndarray:
    return np.random.default_rng(7).standard_t(3, COUNT).astype(np.float32)


def compare(*arguments: object) -> dict:
    return json.loads(must_run("compare", "--quick", *arguments, "--json", "-"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compare") / "gradient.npy"
    np.save(path, gradient())
    return path


@pytest.fixture(scope="module")
def everything(source: Path) -> dict:
    return compare("--input", source)


@pytest.fixture(scope="module")
def written(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that a run over all codecs writes, and its table in `said`."""
    folder = tmp_path_factory.mktemp("written")
    command = ["compare", "--quick", "--input", source, "--codecs", "all"]
    (folder / "said").write_bytes(must_run(*command, "--json", folder / "rows.json"))
    return folder


def test_all_is_every_registered_codec_and_its_examples(everything: dict) -> None:
    canonical = [row["spec"] for row in everything["rows"]]
    assert len(set(canonical)) == len(canonical)
    assert {row["method"] for row in everything["rows"]} <= set(listed_specs())
    names = {codec["name"] for codec in json.loads(must_run("codecs", "--json"))["codecs"]}
    assert {row["method"] for row in everything["rows"]} >= names
    assert [row["method"] for row in everything["rows"] if row["failed"]] == []


def test_figures_are_numpys(tmp_path: Path, source: Path, everything: dict) -> None:
    """Compares methods that draw no random numbers with the file that `encode` makes."""
    values = gradient().astype(np.float64)
    compared = 0
    for row in everything["rows"]:
        if row["streams"] > 1:
            continue
        compared += 1
        file = encode(tmp_path, row["method"], gradient())
        facts = json.loads(must_run("inspect", file, "--json"))
        message = file.stat().st_size - facts["header_bytes"]
        # The step number's length depends on its value: it is 1 here, and 0 in a file.
        assert row["bits_per_value"] == pytest.approx(8 * message / COUNT, abs=8 * 2 / COUNT)
        assert row["times_smaller"] == pytest.approx(32 / row["bits_per_value"])
        decoded = decode(tmp_path, file).astype(np.float64)
        error = decoded - values
        norms = np.linalg.norm(decoded) * np.linalg.norm(values)
        expected = {
            "relative_l2": np.linalg.norm(error) / np.linalg.norm(values),
            "cosine": decoded @ values / norms,
            "max_error": np.abs(error).max(),
            "bias": error.mean() / np.abs(values).mean(),
            "gain": decoded @ values / (values @ values),
        }
        for key, figure in expected.items():
            assert row[key] == pytest.approx(figure, rel=1e-9, abs=1e-12), (row["method"], key)
    assert compared > 5


def test_error_feedback_corrects_onebits_errors(tmp_path: Path) -> None:
    values = gradient()[:1000]
    np.save(tmp_path / "in.npy", values)
    (row,) = compare("--input", tmp_path / "in.npy", "--codecs", "onebit")["rows"]
    residual = np.zeros_like(values)
    received = np.zeros(len(values))
    for _ in range(20):
        wanted = values + residual
        positive = wanted >= 0
        sent = np.where(positive, wanted[positive].mean(), wanted[~positive].mean())
        residual = wanted - sent
        received += sent
    expected = np.linalg.norm(received - 20.0 * values) / np.linalg.norm(20.0 * values)
    assert row["feedback_relative_l2"] == pytest.approx(expected, rel=1e-3)
    assert row["error_feedback"] and row["feedback_relative_l2"] < row["relative_l2"]


def test_speed_is_that_of_a_copy_times_its_ratio(everything: dict) -> None:
    for row in everything["rows"]:
        for way in ("encode", "decode"):
            assert row[f"{way}_gb_s"] > 0 and row[f"{way}_to_copy"] > 0
        assert row["copy_gb_s"] > 0


def synthetic_names() -> list[str]:
    listed = must_run("compare", "--help").decode().partition("NAME is one of\n")[2]
    return re.findall(r"^  ([a-z-]+) ", listed.partition("\n\n")[0], re.MULTILINE)


@pytest.mark.parametrize("name", synthetic_names())
def test_every_synthetic_input_of_the_help(name: str) -> None:
    found = compare("--input", f"synthetic:{name}:n=3000,seed=5", "--codecs", "fp32", "bf16")
    (drawn,) = found["inputs"]
    assert drawn["values"] == 3000 and "seed 5" in drawn["about"]
    assert found["rows"][0]["relative_l2"] == 0
    assert not any(row["failed"] for row in found["rows"])


def test_synthetic_inputs_are_what_they_are_called() -> None:
    def facts(name: str) -> dict:
        return compare("--input", f"synthetic:{name}:n=100000", "--codecs", "fp32")["inputs"][0]

    assert facts("normal")["norm"] == pytest.approx(0.01 * 100_000**0.5, rel=0.02)
    assert facts("laplace")["norm"] == pytest.approx(0.01 * 200_000**0.5, rel=0.02)
    assert facts("uniform")["norm"] == pytest.approx(0.01 * (100_000 / 3) ** 0.5, rel=0.02)
    assert facts("uniform")["largest"] == pytest.approx(0.01, rel=0.001)
    assert facts("heavy-tail")["largest"] > 0.2
    assert facts("sparse")["zeros"] == pytest.approx(99_000, abs=200)
    assert facts("zeros")["zeros"] == 100_000
    assert facts("constant")["norm"] == pytest.approx(0.01 * 100_000**0.5)


def test_a_method_that_refuses_the_input_says_why(tmp_path: Path) -> None:
    values = gradient()
    values[321] = np.nan
    np.save(tmp_path / "in.npy", values)
    found = compare("--input", tmp_path / "in.npy", "--codecs", "3lc", "fp32")
    refused, carried = found["rows"]
    assert "321" in refused["failed"] and refused["bits_per_value"] is None
    assert carried["failed"] is None and carried["relative_l2"] == 0
    assert found["inputs"][0]["not_finite"] == 1
    said = must_run(
        "compare", "--quick", "--input", tmp_path / "in.npy", "--codecs", "3lc"
    ).decode()
    assert re.search(r"^3lc +failed: .*321", said, re.MULTILINE) and "1 NaN or Inf" in said


def test_rules_and_several_inputs(source: Path, tmp_path: Path) -> None:
    coded = encode(tmp_path, "bf16", gradient())
    rules = "grad*: bf16, rest fp32"
    found = compare("--input", source, "--input", coded, "--input", source, "--codecs", rules)
    assert [row["input"] for row in found["rows"]] == [str(source), str(coded)]
    # In the file the tensor has another name, and its values have been through bf16 already.
    assert [round(row["bits_per_value"]) for row in found["rows"]] == [16, 32]
    assert [row["relative_l2"] == 0 for row in found["rows"]] == [False, True]


def test_small_tensors_travel_as_float32(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", gradient()[:255])
    small = ["--input", tmp_path / "in.npy", "--codecs", "bf16"]
    assert compare(*small)["rows"][0]["relative_l2"] == 0
    assert compare(*small, "--min-elements", 255)["rows"][0]["relative_l2"] > 0


def test_the_table_has_the_rows_of_json(written: Path, everything: dict) -> None:
    said = (written / "said").read_text()
    rows = json.loads((written / "rows.json").read_text())["rows"]
    assert {row["method"] for row in rows} == {row["method"] for row in everything["rows"]}
    for row in rows:
        assert re.search(rf"^{re.escape(row['method'])} +[0-9]", said, re.MULTILINE)


@pytest.mark.parametrize("key,best", [("bits_per_value", min), ("times_smaller", max)])
def test_sort(source: Path, key: str, best: object) -> None:
    found = compare("--input", source, "--codecs", "fp32", "bf16", "int8", "--sort", key)
    figures = [row[key] for row in found["rows"]]
    assert figures == sorted(figures, reverse=best is max)


@pytest.mark.parametrize(
    "arguments,words",
    [
        ([], ["--input", "required"]),
        (["--input", "synthetic:"], ["synthetic:", "normal", "heavy-tail"]),
        (["--input", "synthetic:cauchy"], ["cauchy", "normal"]),
        (["--input", "synthetic:normal:n=0"], ["n=COUNT"]),
        (["--input", "synthetic:normal:n=1e9"], ["n=COUNT"]),
        (["--input", "synthetic:normal:n=5,seed=-1"], ["seed=NUMBER"]),
        (["--input", "synthetic:normal:n=5,"], ["n=COUNT"]),
        (["--input", "gone.npy", "--codecs", "3lc:s=3"], ["--codecs", "3lc:s=3", "0.5 <= s < 2"]),
        (["--input", "gone.npy", "--codecs", "fp32", "4lc"], ["4lc", "3lc"]),
        (["--input", "gone.npy", "--codecs", "direct(3lc)"], ["direct(3lc)"]),
        (["--input", "gone.npy", "--sort", "size"], ["--sort", "size"]),
        (["--input", "gone.npy", "--seconds", "-1"], ["--seconds"]),
    ],
)
def test_bad_usage(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    assert_refused(USAGE, words, "compare", *arguments)


def test_bad_inputs_and_outputs(tmp_path: Path, source: Path) -> None:
    assert_refused(
        FAILURE, ["gone.npy", "no such file"], "compare", "--input", tmp_path / "gone.npy"
    )
    (tmp_path / "empty").mkdir()
    assert_refused(FAILURE, ["empty", "no trace.json"], "compare", "--input", tmp_path / "empty")
    np.save(tmp_path / "none.npy", np.zeros((3, 0), np.float32))
    assert_refused(FAILURE, ["none.npy", "no values"], "compare", "--input", tmp_path / "none.npy")
    np.save(tmp_path / "double.npy", np.full(3, 0.1))
    words = ["double.npy", "element 0 is 0.1", "not exactly a float32"]
    assert_refused(FAILURE, words, "compare", "--input", tmp_path / "double.npy")
    (tmp_path / "taken.json").write_text("precious")
    taken = ["--json", tmp_path / "taken.json"]
    assert_refused(FAILURE, ["taken.json", "--force"], "compare", "--input", source, *taken)
    assert (tmp_path / "taken.json").read_text() == "precious"
    must_run("compare", "--quick", "--input", source, "--codecs", "fp32", *taken, "--force")
    assert json.loads((tmp_path / "taken.json").read_text())["interrupted"] is False
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"empty", "none.npy", "double.npy", "taken.json"}


@pytest.mark.parametrize("dtype", [">f4", "<f8", "<f2"])
def test_input_may_be_of_every_type_that_encode_takes(tmp_path: Path, dtype: str) -> None:
    values = gradient().astype("<f2").reshape(50, 100)
    np.save(tmp_path / "in.npy", np.asfortranarray(values.astype(dtype)))
    np.save(tmp_path / "plain.npy", values.astype(np.float32))
    coded = encode(tmp_path, "zstd", values.astype(dtype))
    inputs = [("--input", tmp_path / name) for name in ("plain.npy", "in.npy", coded.name)]
    rows = compare(*sum(inputs, ()), "--codecs", "int8", "bf16")["rows"]
    figures = [(row["relative_l2"], row["bits_per_value"]) for row in rows]
    assert figures[:2] == figures[2:4] == figures[4:] and figures[0][0] > 0


def test_standard_input(source: Path) -> None:
    done = run("compare", "--quick", "--input", "-", "--codecs", "fp32", stdin=source.read_bytes())
    assert done.returncode == 0 and done.stdout.startswith(b"standard input: an array of shape")


def test_an_input_that_does_not_end() -> None:
    words = ["/dev/zero", "does not end within 268435456 bytes", "give a file"]
    assert_refused(FAILURE, words, "compare", "--input", "/dev/zero")


def test_progress_is_for_terminals_alone(source: Path) -> None:
    command = ("compare", "--quick", "--input", source, "--codecs", "fp32")
    assert run(*command).stderr == b""
    shown = shown_on_terminal(*command)
    assert shown.startswith("\r[1/1] fp32: ") and shown.endswith("\r\x1b[K")


def test_interrupted_work_is_kept(tmp_path: Path) -> None:
    """Ctrl-C during the second row, which the terminal's line shows: the first is kept."""
    ours, theirs = pty.openpty()
    command = [BINARY, "compare", "--input", "synthetic:normal:n=1000", "--codecs", "fp32", "bf16"]
    command += ["--seconds", "2", "--json", tmp_path / "rows.json"]
    with (
        os.fdopen(ours, "rb", buffering=0) as terminal,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as program,
    ):
        os.close(theirs)
        shown = b""
        while b"[2/2] bf16" not in shown:
            shown += terminal.read(4096)
        program.send_signal(signal.SIGINT)
        said = program.stdout.read().decode()
        assert program.wait(TIMEOUT) == INTERRUPTED
        while b"interrupted" not in shown:
            shown += terminal.read(4096)
    assert b"interrupted: 1 of 2 rows were measured, and are kept" in shown
    assert re.search(r"^fp32 +32", said, re.MULTILINE) and "\nbf16" not in said
    written = json.loads((tmp_path / "rows.json").read_text())
    assert written["interrupted"] and [row["method"] for row in written["rows"]] == ["fp32"]
