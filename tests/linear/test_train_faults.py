"""What `deltawire train linear` says when something fails; apps/linear/README.md has the table.
Bad rows and bad options are in test_train.py."""

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_program import BINARY, FAILURE, INTERRUPTED, TIMEOUT, must_run
from linear_rows import FEATURES, text_of

ENDLESS = ("--epochs", 1000000, "--stop", 0)

# Runs a command with a file system of 64 KiB in a separate namespace: nothing is left mounted.
BESIDE_A_FULL_DISK = """
mount -t tmpfs -o size=64k tmpfs "$0" && cd "$0" || exit 77
"$@"; status=$?
echo "left: $(find . -type f | wc -l)" >&2
exit $status
"""


def test_a_worker_with_larger_indices_makes_the_model_larger(tmp_path: Path) -> None:
    (tmp_path / "part-0").write_text(text_of(300))
    (tmp_path / "part-1").write_text(text_of(300, seed=2) + "1 5000:1\n" * 10)
    model = tmp_path / "model.npz"
    settings = ("--data", tmp_path / "part-*", "--workers", 2, "--epochs", 3)
    must_run("train", "linear", *settings, "--model", model)
    with np.load(model) as saved:
        assert saved["weights"].shape == (5001,) and saved["weights"][5000] > 0


def test_features_that_only_the_test_data_have_count_nothing(data: Path, tmp_path: Path) -> None:
    test, model = tmp_path / "test.libsvm", tmp_path / "model.npz"
    rows = text_of(200, seed=2)
    test.write_text(rows)
    settings = ("train", "linear", "--data", data, "--test", test, "--model", model, "--force")
    settings += ("--codec", "direct(fp32)")
    known = json.loads(must_run(*settings, "--json", "-"))
    test.write_text(rows.replace("\n", " 5000:3\n"))
    unseen = json.loads(must_run(*settings, "--json", "-"))
    assert unseen["final"]["test_loss"] == known["final"]["test_loss"]
    with np.load(model) as saved:
        assert saved["weights"].shape == (5001,) and not saved["weights"][FEATURES + 1 :].any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--hash-bits", 16, "--model", "m.npz"], ["m.npz: cannot be written", "train again"]),
        (["--epochs", 800, "--json", "m.json"], ["m.json: cannot be written", "train again"]),
        (["--memory", 0, "--workers", 2], ["temporary file of rows", "TMPDIR", "make room"]),
    ],
    ids=["model", "json", "rows"],
)
def test_a_full_disk_leaves_nothing_half_written(
    options: list, words: list[str], data: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    command = [str(BINARY), "train", "linear", "--data", str(data), "--stop", "0"]
    command += map(str, options)
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed: no disk can be full")
    apart = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "-r"]
    done = subprocess.run(
        [*apart, "sh", "-c", BESIDE_A_FULL_DISK, str(small), *command],
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
        env={**os.environ, "TMPDIR": str(small)},
    )
    said = done.stderr.decode().splitlines()
    if done.returncode == 77 or "unshare" in said[0]:
        pytest.skip(f"no small file system can be mounted here: {said[0]}")
    assert done.returncode == FAILURE
    assert len(said) == 2 and said[1] == "left: 0", said
    for word in (*words, "No space left on device"):
        assert word in said[0]


@pytest.mark.parametrize(
    ("fault", "words"),
    [(signal.SIGKILL, "rank 2 closed its connection"), (signal.SIGSTOP, "rank 2 answers nothing")],
)
def test_a_worker_that_is_killed_or_frozen_is_named_by_the_deadline(
    fault: signal.Signals, words: str, data: Path, tmp_path: Path
) -> None:
    command = [BINARY, "train", "linear", "--data", data, "--workers", 3, "--timeout", 3, *ENDLESS]
    command += ["--model", tmp_path / "model.npz"]
    running = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout.readline().startswith(b"epoch 1/")
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    os.kill(int(children[1]), fault)
    began = time.monotonic()
    _, said = running.communicate(timeout=TIMEOUT)
    assert running.returncode == FAILURE
    assert said.count(b"\n") == 1
    assert words in said.decode()
    assert time.monotonic() - began < TIMEOUT / 2
    assert not list(tmp_path.glob("model*"))
    assert not Path(f"/proc/{children[1]}").exists()


@pytest.mark.parametrize("interrupt", [os.kill, os.killpg], ids=["rank-0", "all"])
def test_an_interrupt_ends_all_workers_and_leaves_no_model(
    interrupt: Callable[[int, int], None], data: Path, tmp_path: Path
) -> None:
    command = [BINARY, "train", "linear", "--data", data, "--workers", 2, *ENDLESS]
    command += ["--model", tmp_path / "model.npz"]
    running = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert running.stdout.readline().startswith(b"epoch 1/")
    interrupt(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=TIMEOUT)
    assert running.returncode == INTERRUPTED
    assert said == b"deltawire: interrupted: no model is written\n"
    assert not list(tmp_path.glob("model*"))
    with pytest.raises(ProcessLookupError):
        os.killpg(running.pid, 0)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_model_that_memory_cannot_hold_is_one_line(workers: int, tmp_path: Path) -> None:
    path = tmp_path / "huge.libsvm"
    path.write_text("1 1:1\n-1 4294967290:1\n" * 20)
    limit = 4 << 30
    done = subprocess.run(
        [BINARY, "train", "linear", "--data", str(path), "--workers", str(workers)],
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.returncode == FAILURE
    said = done.stderr.decode()
    assert said.count("\n") == 1 and "no memory to train 4294967292 weights" in said
    assert "--hash-bits" in said
