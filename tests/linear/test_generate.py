"""`deltawire generate`: rows in the shape of published sets, with a right answer."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cli_program import BINARY, FAILURE, TIMEOUT, USAGE, assert_refused, must_run


def generate(name: str, output: Path, *options: object) -> bytes:
    must_run("generate", name, output, *options)
    return output.read_bytes()


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    small = ("--rows", 300, "--features", 5000)
    plain = generate("kdd12", tmp_path / "rows", *small)
    assert plain.count(b"\n") == 300
    assert must_run("generate", "kdd12", "-", *small) == plain
    assert generate("kdd12", tmp_path / "other", *small, "--seed", 2) != plain


def test_the_scale_is_of_rows_and_of_features(tmp_path: Path) -> None:
    weights = tmp_path / "weights.npz"
    rows = generate("url", tmp_path / "rows", "--scale", 0.001, "--weights", weights)
    assert rows.count(b"\n") == 2397
    with np.load(weights) as planted:
        assert planted["weights"].shape == (3232 + 1,)


def test_training_finds_the_planted_weights(tmp_path: Path) -> None:
    """The planted model is right but for the noise, and a trained one is nearly as good."""
    data, weights = tmp_path / "rows", tmp_path / "weights.npz"
    shape = ("--rows", 12_000, "--features", 200, "--noise", 0.05)
    generate("url", data, *shape, "--weights", weights)
    command = ("predict", "--model", weights, "--data", data, "--margins")
    margins = np.array(must_run(*command).split(), float)
    text = must_run("generate", "url", "-", *shape).decode().splitlines()
    labels = np.array([float(line.split(" ", 1)[0]) for line in text])
    planted = np.mean((margins > 0) == (labels > 0))
    assert planted == pytest.approx(1 - 2 * 0.05 * 0.33 * 0.67, abs=0.005)
    training = ("--l2", 1e-5, "--epochs", 20, "--stop", 0)
    report = json.loads(must_run("train", "linear", "--data", data, *training, "--json", "-"))
    assert planted - 0.05 < report["final"]["accuracy"] < planted + 0.02


def test_what_exists_is_kept_unless_forced(tmp_path: Path) -> None:
    kept = tmp_path / "rows"
    kept.write_text("mine")
    small = ("--rows", 10, "--features", 100)
    assert_refused(FAILURE, [str(kept), "--force"], "generate", "url", kept, *small)
    assert kept.read_text() == "mine"
    weights = ("--weights", tmp_path / "nowhere" / "weights.npz")
    assert_refused(FAILURE, ["nowhere"], "generate", "url", tmp_path / "new", *small, *weights)
    assert not (tmp_path / "new").exists()
    both = (tmp_path / "new", *small, "--weights", f"{tmp_path}/./new")
    assert_refused(USAGE, ["two files"], "generate", "url", *both)
    assert generate("url", kept, *small, "--force").count(b"\n") == 10


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a9a", "OUT"], ["a9a", "kdd12"]),
        (["kdd12", "OUT", "--scale", "0"], ["--scale"]),
        (["kdd12", "OUT", "--features", "10"], ["11 features or more", "--features"]),
        (["url", "OUT", "--features", "4294967295"], ["2^32 - 2", "--features"]),
        (["url", "OUT", "--noise", "2"], ["--noise"]),
        (["url", "OUT", "--weights", "-"], ["--weights: -"]),
    ],
)
def test_refusals(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    named = [str(tmp_path / "out") if argument == "OUT" else argument for argument in arguments]
    assert_refused(USAGE, words, "generate", *named)
    assert not list(tmp_path.iterdir())


def has_written(folder: Path) -> bool:
    """Whether rows are being written: a temporary file that only tests the folder comes first."""
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > 0:
                return True
    return False


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    command = [BINARY, "generate", "kdd12", tmp_path / "rows", "--scale", "1"]
    command += ["--weights", tmp_path / "weights.npz"]
    running = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE)
    try:
        while not has_written(tmp_path):
            assert running.poll() is None
        os.kill(running.pid, signal.SIGINT)
        assert running.wait(TIMEOUT) == -signal.SIGINT
    finally:
        running.kill()
        running.wait()
    assert not list(tmp_path.iterdir())
