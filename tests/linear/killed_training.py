"""Trainings of `deltawire train linear --checkpoint` that are killed."""

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from cli_program import TIMEOUT

ENDLESS = ("--epochs", 1000000, "--stop", 0)  # a late kill, too, hits a training at work


def steps_in(folder: Path) -> set[int]:
    """Steps of which a rank has a finished checkpoint."""
    names = (
        re.fullmatch(r"step-(\d+)\.rank-.*\.checkpoint", path.name) for path in folder.glob("*")
    )
    return {int(name[1]) for name in names if name}


def last_step_in(folder: Path) -> int:
    """The last step with a checkpoint, 0 if there is none yet."""
    return max(steps_in(folder), default=0)


def kill_after_step(command: list[object], folder: Path, step: int, delay: float) -> None:
    """Starts a training, and kills all its processes (SIGKILL) `delay` seconds after a checkpoint
    of `step` or a later step exists."""
    running = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + TIMEOUT
        while running.poll() is None and last_step_in(folder) < step:
            assert time.monotonic() < end, "no checkpoint came"
            time.sleep(0.001)
        time.sleep(delay)  # any moment will do: within a step, while a checkpoint is written
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    _, said = running.communicate(timeout=TIMEOUT)
    assert running.returncode == -signal.SIGKILL, said
