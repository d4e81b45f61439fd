"""`deltawire train linear --checkpoint`: trainings that are killed go on, to the same bytes."""

import json
import random
import signal
import subprocess
from pathlib import Path

import pytest
from cli_program import BINARY, TIMEOUT, assert_refused, must_run
from killed_training import ENDLESS, kill_after_step, last_step_in, steps_in
from linear_rows import text_of

FAILURE, INTERRUPTED = 1, 130
BATCHES = 10  # steps of a data epoch
KILLS, REACH = 4, 60  # and steps from a kill to the next, at most


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.libsvm"
    path.write_text(text_of(2000))
    return path


@pytest.mark.parametrize(
    ("workers", "codec", "optimizer"),
    [
        (1, "fastsgd", "adam"),
        (1, "direct(fp32)", "sgd"),
        (3, "fastsgd", "adam"),
        (3, "direct(fp32)", "adagrad"),
        (3, "3lc", "adam"),
    ],
)
def test_killed_at_any_moment_and_resumed_gives_the_same_model(
    workers: int, codec: str, optimizer: str, data: Path, tmp_path: Path
) -> None:
    # Hashed to 2^10 features: gradients of fewer than 256 values travel raw.
    common = ["train", "linear", "--data", data, "--workers", workers, "--codec", codec]
    common += ["--optimizer", optimizer, "--lr", 0.05, "--batch", 0.1, "--hash-bits", 10]
    through, resumed, folder = (tmp_path / name for name in ("through.npz", "resumed.npz", "kept"))
    kept = [*common, "--model", resumed, "--checkpoint", folder, "--every", 1]
    draw = random.Random(f"{workers} {codec}")
    more: list[str] = []
    for _ in range(KILLS):
        step = last_step_in(folder) + draw.randint(1, REACH)
        kill_after_step([BINARY, *kept, *ENDLESS, *more], folder, step, draw.uniform(0, 0.02))
        assert not resumed.exists()
        assert last_step_in(folder) >= step  # nothing was lost but what came after it
        more = ["--resume"]
    end = ["--epochs", last_step_in(folder) // BATCHES + 2, "--stop", 0]
    report = json.loads(must_run(*kept, *end, *more, "--json", "-"))
    expected = json.loads(must_run(*common, *end, "--model", through, "--json", "-"))
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


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(
    data: Path, tmp_path: Path
) -> None:
    folder, model = tmp_path / "kept", tmp_path / "model.npz"
    common = ["train", "linear", "--data", data, "--workers", 2, "--epochs", 2, "--stop", 0]
    common += ["--batch", 0.1, "--model", model, "--checkpoint", folder, "--every", 5]
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
            ['codec "fastsgd", and here it is "int8"'],
            training(data, 2, 2, "--resume", "--codec", "int8"),
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
