"""`deltawire train linear --grid`: which learning rate it takes, and what it says of them."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cli_program import BINARY, assert_refused, must_run
from linear_rows import text_of

USAGE, FAILURE = 2, 1


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.libsvm"
    path.write_text(text_of(2000))
    return path


def train(*arguments: object) -> dict:
    return json.loads(must_run("train", "linear", *arguments, "--json", "-"))


@pytest.mark.parametrize("workers", [1, 2])
def test_training_goes_on_with_the_best(data: Path, tmp_path: Path, workers: int) -> None:
    model = tmp_path / "model.npz"
    settings = ("--data", data, "--epochs", 3, "--workers", workers)
    report = train(*settings, "--grid", "--model", model)
    grid = report["settings"]["grid"]
    tried = grid["tried"]
    assert len(tried) == 21 and grid["judged_by"] == "test_loss"
    assert len({(each["learning_rate"], each["rate_decay"]) for each in tried}) == 21
    best = min(tried, key=lambda each: each["loss"])
    rate, decay = best["learning_rate"], best["rate_decay"]
    assert report["settings"]["rate_decay"] == decay
    # Codecs start afresh, so the result is the same as if the rate had been given.
    given = train(*settings, "--lr", rate, "--decay", decay)
    assert given["settings"]["optimizer"] == report["settings"]["optimizer"]
    assert given["final"]["test_loss"] == report["final"]["test_loss"]
    with np.load(model) as saved:
        assert json.loads(bytes(saved["settings"]))["grid"] == grid


def was_killed_in_epoch_4(command: list[object]) -> bool:
    """Kills a training in epoch 4; false if it ended before, because the kill came late."""
    running = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with running:
        for line in running.stdout:
            if line.startswith("epoch 4/"):
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    return running.returncode < 0


@pytest.mark.timeout(400)  # 22 trainings a run, and at least 3 runs
def test_a_killed_training_chooses_again_and_continues(data: Path, tmp_path: Path) -> None:
    settings = ["--data", data, "--epochs", 40, "--batch", 0.1, "--stop", 0]
    settings += ["--grid", "--workers", 2]
    whole = train(*settings)
    for attempt in range(10):  # the grid's trainings have as many epochs, so this one must end soon
        kept = ["--checkpoint", tmp_path / f"kept-{attempt}", "--every", 3]
        if was_killed_in_epoch_4([BINARY, "train", "linear", *settings, *kept]):
            break
    else:
        pytest.fail("ten kills came too late")
    resumed = train(*settings, *kept, "--resume")
    assert resumed["settings"]["grid"] == whole["settings"]["grid"]
    assert resumed["final"]["test_loss"] == whole["final"]["test_loss"]


def test_the_sample_is_a_share_of_the_rows(data: Path) -> None:
    settings = ("--data", data, "--epochs", 1, "--grid")
    # 70 % of 2,000 rows are for training: a thousand of them is the least that is tried on.
    least = train(*settings)["settings"]["grid"]
    assert 100 * 1000 / 1460 < least["sample_percent"] < 100 * 1000 / 1340
    assert 850 < least["sample_rows"] < 1150
    assert train(*settings, "--grid-sample", 100)["settings"]["grid"]["sample_percent"] == 100


def test_a_table_is_printed(data: Path) -> None:
    lines = (
        must_run("train", "linear", "--data", data, "--epochs", 1, "--grid").decode().splitlines()
    )
    assert lines[0].split() == ["learning", "rate", "decay", "loss"]
    rates = [float(line.split()[0]) for line in lines[1:22]]
    assert rates == [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1] * 3
    assert lines[22].startswith("best by the held-out loss on ") and "--lr " in lines[22]
    assert lines[23].startswith("epoch 1/1")


def test_a_rate_at_the_end_of_the_grid_is_pointed_out(data: Path) -> None:
    # One step in all: even the largest rate is too small.
    command = ("train", "linear", "--data", data, "--epochs", 1, "--batch", 1, "--optimizer", "sgd")
    said = must_run(*command, "--grid").decode()
    assert "(the grid's largest rate: try larger ones)" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid", "--lr", "0.1"], "--lr"),
        (["--grid", "--decay", "0.1"], "--decay"),
        (["--grid-sample", "5"], "--grid"),
        (["--grid", "--grid-sample", "200"], "--grid-sample"),
    ],
)
def test_what_goes_with_a_grid(arguments: list[str], message: str, data: Path) -> None:
    assert_refused(USAGE, [message], "train", "linear", "--data", data, *arguments)


def test_data_without_two_labels_end_it(tmp_path: Path) -> None:
    data = tmp_path / "rows.libsvm"
    data.write_text("1 1:1\n" * 20)
    command = ("train", "linear", "--data", data, "--grid", "--json", "-")
    assert_refused(FAILURE, ["all rows have one label"], *command)
