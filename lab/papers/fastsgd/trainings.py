"""Trainings of `deltawire train linear`, with each rank in its own network namespace."""

import contextlib
import dataclasses
import json
import secrets
import subprocess
import tempfile
from pathlib import Path

from lab.command.paths import DELTAWIRE
from lab.ranks.links import parse_link
from lab.ranks.namespaces import Namespaces

_PORT = 7171
_SECONDS = 3600.0  # the longest training
# The paper's section 4.1: Adam, and minibatches of 10 % of the rows. All data epochs are trained,
# because comparisons use the whole curve.
_AS_THE_PAPER = (
    *("--optimizer", "adam", "--decay", 0, "--batch", 0.1, "--no-bias", "--no-average"),
    *("--stop", 0),
)


class TrainingFailed(Exception):
    """One line with the reason."""


@dataclasses.dataclass(frozen=True)
class Training:
    """The settings in which one training differs from another.

    Attributes:
        codec: a codec, or `owners(CODEC back CODEC)` with weights at owners.
        features: of the data; the data's other settings are the same for all trainings.
    """

    codec: str
    workers: int
    link: str
    loss: str
    features: int
    epochs: int


@dataclasses.dataclass(frozen=True)
class Data:
    """Rows shaped like KDD12's, in files that are written when first needed."""

    folder: Path
    rows: int
    seed: int

    def file(self, features: int) -> Path:
        """The rows with this number of features.

        Raises:
            TrainingFailed: they could not be written.
        """
        path = self.folder / f"kdd12-{self.rows}-{features}-{self.seed}.libsvm"
        if not path.exists():
            size = ("--rows", self.rows, "--features", features, "--seed", self.seed)
            _must_run([DELTAWIRE, "generate", "kdd12", path, *size])
        return path


def run(training: Training, data: Data, options: tuple[object, ...]) -> dict:
    """Rank 0's figures: what `--json` writes. `options` go to every rank.

    Raises:
        TrainingFailed: a rank failed.
        NamespaceError: this machine has no namespaces for us.
    """
    rate = parse_link(training.link).bytes_per_second
    file = data.file(training.features)
    with (
        tempfile.TemporaryDirectory(prefix="deltawire-fastsgd-") as name,
        Namespaces(training.workers, rate) as namespaces,
        contextlib.ExitStack() as ending,
    ):
        folder = Path(name)
        (folder / "token").write_bytes(secrets.token_bytes(32))
        common = [
            *(DELTAWIRE, "train", "linear", "--data", file, "--codec", training.codec),
            *("--loss", training.loss, "--epochs", training.epochs, *_AS_THE_PAPER),
            *("--timeout", 300, *options),
        ]
        if training.workers > 1:
            common += ["--rendezvous", f"{namespaces.address(0)}:{_PORT}"]
            common += ["--world", training.workers, "--token-file", folder / "token"]
        processes = []
        for rank in range(training.workers):
            own = ["--json", folder / "report"] if rank == 0 else []
            if training.workers > 1:
                own += ["--rank", rank]
            command = list(map(str, [*namespaces.command_prefix(rank), *common, *own]))
            with (folder / f"log-{rank}").open("wb") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            ending.callback(_end, process)
            processes.append(process)
        return _report(training, processes, folder)


def _report(training: Training, processes: list[subprocess.Popen], folder: Path) -> dict:
    try:
        failed = [rank for rank, each in enumerate(processes) if each.wait(_SECONDS) != 0]
    except subprocess.TimeoutExpired as cause:
        raise TrainingFailed(f"{training.codec}: not done after {_SECONDS:.0f} s") from cause
    if failed:
        words = (folder / f"log-{failed[0]}").read_text(errors="replace").strip()
        raise TrainingFailed(f"{training.codec}, rank {failed[0]}: {words[-300:]}")
    return json.loads((folder / "report").read_text())


def _end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()


def _must_run(command: list[object]) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TrainingFailed(done.stderr.strip())
