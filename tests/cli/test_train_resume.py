"""`deltawire train linear --checkpoint`: trainings that are killed go on, to the same bytes."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli_program import BINARY, TIMEOUT, assert_refused, must_run
from linear_rows import text_of

FAILURE, INTERRUPTED = 1, 130
# Steps of 10 % of the rows; so many that a kill which comes late finds the training at work.
EPOCHS, BATCHES = 40, 10
REACH = EPOCHS * BATCHES // 3 - 1  # steps from a kill to the next, at most


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.libsvm"
    path.write_text(text_of(2000))
    return path


def steps_in(folder: Path) -> set[int]:
    """Steps of which a rank has a finished checkpoint."""
    names = (
        re.fullmatch(r"step-(\d+)\.rank-.*\.checkpoint", path.name) for path in folder.glob("*")
    )
    return {int(name[1]) for name in names if name}


def kill_after_step(command: list[str], folder: Path, step: int, delay: float) -> bool:
    """Starts it, and ends all of its processes by SIGKILL so many seconds after a checkpoint of
    `step` or later is there. False: it was done before."""
    running = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    end = time.monotonic() + TIMEOUT
    while running.poll() is None and max(steps_in(folder), default=0) < step:
        assert time.monotonic() < end, "no checkpoint came"
        time.sleep(0.001)
    time.sleep(delay)  # any moment will do: within a step, while a checkpoint is written
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    _, said = running.communicate(timeout=TIMEOUT)
    assert running.returncode in (0, -signal.SIGKILL), said
    return running.returncode != 0


@pytest.mark.parametrize(
    ("workers", "codec", "optimizer"),
    [
        (1, "fastsgd", "adam"),
        (1, "direct(fp32)", "sgd"),
        (3, "fastsgd", "adam"),
        (3, "direct(fp32)", "adagrad"),
        (3, "3lc", "adam"),
        (3, "owners(natural back bf16)", "adam"),
    ],
)
def test_killed_at_any_moment_and_resumed_gives_the_same_model(
    workers: int, codec: str, optimizer: str, data: Path, tmp_path: Path
) -> None:
    # Hashed to 2^10 features: gradients of fewer than 256 values travel raw.
    common = ["train", "linear", "--data", data, "--workers", workers, "--codec", codec]
    common += ["--optimizer", optimizer, "--lr", 0.05, "--hash-bits", 10, "--bias"]
    common += ["--epochs", EPOCHS, "--stop", 0]
    through, resumed, folder = (tmp_path / name for name in ("through.npz", "resumed.npz", "kept"))
    expected = json.loads(must_run(*common, "--model", through, "--json", "-"))
    kept = [*common, "--model", resumed, "--checkpoint", folder, "--every", 1]
    draw = random.Random(f"{workers} {codec}")
    kills, step, more = 0, 0, []
    while step < EPOCHS * BATCHES - REACH:
        step += draw.randint(1, REACH)
        command = list(map(str, [BINARY, *kept, *more]))
        kills += kill_after_step(command, folder, step, draw.uniform(0, 0.02))
        assert not resumed.exists()
        assert max(steps_in(folder)) >= step  # nothing was lost but what came after it
        more = ["--resume"]
    report = json.loads(must_run(*kept, *more, "--json", "-"))
    assert kills > 2
    assert resumed.read_bytes() == through.read_bytes()
    for before, after in zip(expected["epochs"], report["epochs"], strict=True):
        for figure in ("train_loss", "test_loss", "accuracy", "bytes_per_step"):
            assert after[figure] == before[figure]
    assert len(list(folder.iterdir())) == 2 * workers


def test_an_interrupted_training_says_how_to_go_on(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    command = [BINARY, "train", "linear", "--data", data, "--workers", 2, "--epochs", 100000]
    command += ["--stop", 0, "--checkpoint", folder]
    running = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout.readline().startswith(b"epoch 1/")
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=TIMEOUT)
    assert running.returncode == INTERRUPTED
    assert b"--resume" in said and said.count(b"\n") == 1
    assert steps_in(folder)


def test_a_damaged_checkpoint_is_told_of_and_the_one_before_is_taken(
    data: Path, tmp_path: Path
) -> None:
    folder, model = tmp_path / "kept", tmp_path / "model.npz"
    common = ["train", "linear", "--data", data, "--workers", 2, "--epochs", 2, "--stop", 0]
    common += ["--model", model, "--checkpoint", folder, "--every", 5]
    must_run(*common)
    through = model.read_bytes()
    newest = folder / "step-000000000020.rank-1-of-2.checkpoint"
    newest.write_bytes(newest.read_bytes()[:-1])
    done = subprocess.run(
        list(map(str, [BINARY, *common, "--resume", "--force"])),
        capture_output=True,
        timeout=TIMEOUT,
        check=True,
    )
    assert done.stderr.decode() == (
        f"deltawire: {newest}: was cut or has changed; "
        "an older checkpoint is taken, if there is one\n"
    )
    assert model.read_bytes() == through


def test_others_checkpoints_are_refused(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    other = tmp_path / "others.libsvm"
    other.write_text(text_of(2000, seed=3))

    def training(rows: Path, workers: int, epochs: int, *more: object) -> list[object]:
        settings = ["--data", rows, "--workers", workers, "--epochs", epochs, "--stop", 0]
        return ["train", "linear", "--checkpoint", folder, *settings, *more]

    must_run(*training(data, 2, 2))
    for words, command in (
        (["kept: has checkpoints of an earlier", "--resume"], training(data, 2, 2)),
        (["optimizer", "here it is"], training(data, 2, 2, "--resume", "--lr", 0.5)),
        (
            ['codec "fastsgd", and here it is "3lc"'],
            training(data, 2, 2, "--resume", "--codec", "3lc"),
        ),
        (["of 2 workers, and this training has 3"], training(data, 3, 2, "--resume")),
        (["is of data epoch 2", "--epochs"], training(data, 2, 1, "--resume")),
        (["was made with other data"], training(other, 2, 2, "--resume")),
    ):
        assert_refused(FAILURE, words, *command)
    # When training ends is no such setting.
    must_run(*training(data, 2, 3, "--resume"))
    nowhere = ["train", "linear", "--data", data, "--checkpoint", tmp_path / "none", "--resume"]
    assert_refused(FAILURE, ["has no checkpoint to resume from"], *nowhere)
    assert_refused(2, ["--checkpoint"], "train", "linear", "--data", data, "--resume")
