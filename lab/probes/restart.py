"""Measures how long a job of torchrun rests when a rank is killed, with and without deltawire.

    python -m lab.probes.restart [--ranks 2] [--turns 5]

The last rank kills itself after its third step, torchrun starts all ranks again, and rank 0 takes
its first step. Shown is the time from the kill to that step's end, by turns: plain DDP, and DDP
with `register(model, "3lc")`. Both meet by `deltawire.torch.init_process_group`: with
`torch.distributed`'s, ranks that start again find addresses of dead processes
(docs/guides/checkpoints.md, "When a rank dies").
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab.command.program import main_of, make_parser

WAYS = ("plain DDP", "deltawire")
_RESTARTS = 3
_SECONDS = 300.0  # the longest job


class JobFailed(Exception):
    """One line with the reason."""


def train(way: str, folder: Path) -> None:
    """A rank of the job: three steps, in which the last rank of the first attempt is killed."""
    import deltawire.torch
    import torch
    from torch.nn.parallel import DistributedDataParallel

    deltawire.torch.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(1000, 1000))
    if way == "deltawire":
        deltawire.torch.register(model, "3lc")
    rank = torch.distributed.get_rank()
    for step in range(3):
        model(torch.randn(8, 1000)).square().mean().backward()
        if rank == 0 and step == 0:
            attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
            (folder / f"stepped-{attempt}").write_text(str(time.time()))
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        if rank == torch.distributed.get_world_size() - 1:
            (folder / "killed").write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        model(torch.randn(8, 1000)).square().mean().backward()  # which names the lost rank
    torch.distributed.destroy_process_group()


def measure(way: str, ranks: int) -> tuple[float, int]:
    """Seconds from the kill to the next first step, and how many restarts that took.

    Raises:
        JobFailed: torchrun gave up, or was not done in time.
    """
    with tempfile.TemporaryDirectory(prefix="deltawire-restart-") as name:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={ranks}", f"--max-restarts={_RESTARTS}"]
        command += ["-m", "lab.probes.restart", "--job", way, name]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as cause:
            raise JobFailed(f"{way}: not done after {_SECONDS:.0f} s") from cause
        if done.returncode != 0:
            raise JobFailed(f"{way}: torchrun gave up: {done.stderr.strip()[-300:]}")
        killed = float((Path(name) / "killed").read_text())
        attempts = {int(path.name.split("-")[1]): path for path in Path(name).glob("stepped-*")}
        last = max(attempts)
        return float(attempts[last].read_text()) - killed, last


def run(given: argparse.Namespace) -> None:
    """Measures, and prints the table."""
    if given.job:
        way, folder = given.job
        train(way, Path(folder))
        return
    taken: dict[str, list[tuple[float, int]]] = {way: [] for way in WAYS}
    for _ in range(given.turns):
        for way in WAYS:
            taken[way].append(measure(way, given.ranks))
    print("| | s from the kill to the next step (shortest–longest) | restarts |")
    print("|---|---:|---:|")
    for way, rows in taken.items():
        seconds = sorted(row[0] for row in rows)
        middle = statistics.median(seconds)
        restarts = " ".join(str(row[1]) for row in rows)
        print(f"| {way} | {middle:.2f} ({seconds[0]:.2f}–{seconds[-1]:.2f}) | {restarts} |")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.restart", __doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5, help="jobs of each kind; default 5")
    parser.add_argument("--job", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.turns < 1 or given.ranks < 2:
        parser.error("--turns is at least 1, and --ranks is at least 2")
    return given


main = main_of("lab.probes.restart", parse, run, JobFailed)


if __name__ == "__main__":
    sys.exit(main())
