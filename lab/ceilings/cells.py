"""A cell: one network over one link. Its ranks are processes in namespaces."""

import argparse
import contextlib
import dataclasses
import json
import selectors
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.ceilings.worker import Job
from lab.demo.crew import rank_environment
from lab.links import Link
from lab.namespaces import Namespaces

_SILENCE_SECONDS = 900.0  # a turn of a few steps of 43 MB over 10 Mbit/s, or a model's broadcast
_WORDS = {"made": "made", "warm-up": "step {steps} to warm up", "turn": "{steps} steps"}  # by event
_LAST_WORDS = 3


class CellFailed(Exception):
    """One line with the reason."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """What is measured together; `given` is the command line."""

    network: str
    link: Link
    given: argparse.Namespace

    def __str__(self) -> str:
        return f"{self.network}, {self.link.text}"


def run_cell(cell: Cell) -> dict:
    """{"network", "link", "ranks", "rows"}: rank 0's figures.

    Raises:
        CellFailed: a rank ended early, or was silent.
        NamespaceError: this machine has no namespaces for us.
    """
    given = cell.given
    with (
        tempfile.TemporaryDirectory(prefix="deltawire-ceilings-") as folder,
        Namespaces(given.ranks, cell.link.bytes_per_second) as namespaces,
        contextlib.ExitStack() as ending,
    ):
        ranks = []
        for rank in range(given.ranks):
            process = _start(cell, rank, Path(folder), namespaces)
            ending.callback(_end, process)
            ranks.append(process)
        rows = _follow(cell, ranks, Path(folder))
    return {
        "network": cell.network,
        "link": cell.link.text,
        "ranks": given.ranks,
        "rows": rows,
    }


def _start(cell: Cell, rank: int, folder: Path, namespaces: Namespaces) -> subprocess.Popen:
    given = cell.given
    job = Job(
        rank=rank,
        ranks=given.ranks,
        store=str(folder / "store"),
        interface=namespaces.interface,
        address=namespaces.address(rank),
        network=cell.network,
        size=given.size,
        seed=given.seed,
        methods=tuple(given.methods),
        steps=given.steps,
        seconds=given.seconds,
        warm_up=given.warm_up,
    )
    command = [sys.executable, "-m", "lab.ceilings.worker", json.dumps(dataclasses.asdict(job))]
    with (folder / f"rank-{rank}.log").open("wb") as log:
        return subprocess.Popen(
            [*namespaces.command_prefix(rank), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if rank == 0 else log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the controlling process, which ends them
            env=rank_environment(),
        )


def _end(process: subprocess.Popen) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    process.kill()
    process.wait()


def _follow(cell: Cell, ranks: list[subprocess.Popen], folder: Path) -> list[dict]:
    """Shows rank 0's turns until its rows come."""
    with selectors.DefaultSelector() as selector:
        selector.register(ranks[0].stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(_SILENCE_SECONDS):
                _kill(ranks)
                raise CellFailed(f"rank 0 said nothing for {_SILENCE_SECONDS:.0f} s")
            line = ranks[0].stdout.readline()
            if not line:
                _kill(ranks)
                raise CellFailed(_last_words(folder, len(ranks)))
            event = json.loads(line)
            if event["event"] == "done":
                return event["rows"]
            words = _WORDS[event["event"]].format(**event)
            print(f"{cell}: {event['method']}, {words}", file=sys.stderr, flush=True)


def _kill(ranks: list[subprocess.Popen]) -> None:
    for process in ranks:
        process.kill()


def _last_words(folder: Path, ranks: int) -> str:
    """Of the rank whose log says most about an error."""
    for rank in range(ranks):
        lines = (folder / f"rank-{rank}.log").read_text(errors="replace").strip().splitlines()
        errors = [line for line in lines if "Error" in line]
        if errors:
            return f"rank {rank}: " + " / ".join(line.strip() for line in errors[-_LAST_WORDS:])
    return "a rank ended without a word"
