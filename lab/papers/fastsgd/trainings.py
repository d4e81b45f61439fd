"""Trainings of `deltawire train linear`, with each rank in its own network namespace."""

import contextlib
import functools
import json
import secrets
import subprocess
import tempfile
from pathlib import Path

from lab.command.paths import DELTAWIRE, said_by
from lab.papers.declaration import Metrics, Settings
from lab.ranks.links import parse_link
from lab.ranks.namespaces import Namespaces

_PORT = 7171
_SECONDS = 7200.0  # the longest training
# The paper's section 4.1: Adam, and minibatches of 10 % of the rows. All data epochs are trained,
# because comparisons use the whole curve.
_AS_THE_PAPER = (
    *("--optimizer", "adam", "--decay", 0, "--batch", 0.1, "--no-bias", "--no-average"),
    *("--stop", 0, "--l2", 1e-5),
)
_PARTS = ("compute", "encode", "decode", "exchange", "update")


class TrainingFailed(Exception):
    """One line with the reason."""


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    """For rows, until the program ends."""
    return tempfile.TemporaryDirectory(prefix="deltawire-papers-")


def data_file(shape: str, rows: int, features: int, seed: int) -> Path:
    """Rows shaped like a data set's, written when first needed. Raises CommandFailed."""
    path = Path(_folder().name) / f"{shape}-{rows}-{features}-{seed}.libsvm"
    if not path.exists():
        size = ("--rows", rows, "--features", features, "--seed", seed)
        said_by(DELTAWIRE, "generate", shape, path, *size)
    return path


def measure(scale: Settings, cell: Settings, seed: int) -> Metrics:
    """Seconds and bytes of an epoch, and the held-out losses, at that of the scale's learning rates
    with the lowest held-out loss: the paper tunes the rate of each method by a grid search.

    Raises:
        TrainingFailed: a rank failed.
        NamespaceError: this machine has no namespaces for us.
    """
    rates = cell["rates"] or scale["rates"]
    trained = [_measure_at(rate, scale, cell, seed) for rate in rates]
    return min(trained, key=lambda metrics: metrics["loss"])


def _measure_at(rate: float, scale: Settings, cell: Settings, seed: int) -> Metrics:
    features = max(11, round(scale["features"] * cell["features"]))
    workers, epochs = cell["workers"] or scale["workers"], scale["epochs"]
    options = ("--codec", cell["codec"], "--loss", cell["loss"], "--epochs", epochs)
    file = data_file(scale["shape"], scale["rows"], features, seed)
    more = ("--lr", rate, "--seed", seed)
    report = _train(file, scale["link"], workers, (*options, *more))
    all_epochs = report["epochs"]
    count = len(all_epochs)
    parts = {name: sum(each[f"{name}_seconds"] for each in all_epochs) / count for name in _PARTS}
    return {
        **parts,
        "epoch": report["final"]["seconds"] / count,
        # An SVM sends less as more rows are outside the margin, hence the mean.
        "step_bytes": sum(each["bytes_per_step"] for each in all_epochs) / count,
        "loss": min(each["test_loss"] for each in all_epochs),
        "rate": rate,
        "epochs": [
            [each["seconds"], each["test_loss"], each["bytes_sent"] / 1e6] for each in all_epochs
        ],
    }


def _train(file: Path, link: str, workers: int, options: tuple[object, ...]) -> dict:
    """Rank 0's figures: what `--json` writes."""
    with (
        tempfile.TemporaryDirectory(prefix="deltawire-fastsgd-") as name,
        Namespaces(workers, parse_link(link).bytes_per_second) as namespaces,
        contextlib.ExitStack() as ending,
    ):
        folder = Path(name)
        (folder / "token").write_bytes(secrets.token_bytes(32))
        common: list[object] = [
            *(DELTAWIRE, "train", "linear", "--data", file, *_AS_THE_PAPER),
            *("--timeout", 300, *options),
        ]
        if workers > 1:
            common += ["--rendezvous", f"{namespaces.address(0)}:{_PORT}"]
            common += ["--world", workers, "--token-file", folder / "token"]
        processes = []
        for rank in range(workers):
            own: list[object] = ["--json", folder / "report"] if rank == 0 else []
            if workers > 1:
                own += ["--rank", rank]
            command = list(map(str, [*namespaces.command_prefix(rank), *common, *own]))
            with (folder / f"log-{rank}").open("wb") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            ending.callback(_end, process)
            processes.append(process)
        return _report(processes, folder)


def _report(processes: list[subprocess.Popen], folder: Path) -> dict:
    try:
        failed = [rank for rank, each in enumerate(processes) if each.wait(_SECONDS) != 0]
    except subprocess.TimeoutExpired as cause:
        raise TrainingFailed(f"not done after {_SECONDS:.0f} s") from cause
    if failed:
        words = (folder / f"log-{failed[0]}").read_text(errors="replace").strip()
        raise TrainingFailed(f"rank {failed[0]}: {words[-300:]}")
    return json.loads((folder / "report").read_text())


def _end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
