"""A crew: so many workers and servers, processes in namespaces, and the rows that they find."""

import argparse
import contextlib
import dataclasses
import json
import selectors
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.demo.crew import rank_environment
from lab.links import parse_link
from lab.namespaces import Namespaces
from lab.threelc_server.rank import Job
from lab.threelc_server.rows import Row

_SILENCE_SECONDS = 900.0  # more than any row, and than all ranks' imports, takes
_LAST_WORDS = 3


class CrewFailed(Exception):
    """One line with the reason."""


@dataclasses.dataclass(frozen=True)
class Crew:
    """How many there are of each kind."""

    workers: int
    servers: int

    def __str__(self) -> str:
        return f"{self.workers} workers, {self.servers} server" + "s" * (self.servers > 1)


def run_crew(crew: Crew, rows: list[Row], given: argparse.Namespace) -> list[dict]:
    """The rows, measured. Those of one link stand together.

    Raises:
        CrewFailed: a rank ended early, or was silent.
        NamespaceError: this machine has no namespaces for us.
    """
    first = parse_link(rows[0].link)
    with (
        tempfile.TemporaryDirectory(prefix="deltawire-threelc-") as folder,
        Namespaces(crew.workers + crew.servers, first.bytes_per_second) as namespaces,
        contextlib.ExitStack() as ending,
    ):
        ranks = []
        for rank in range(crew.workers + crew.servers):
            job = Job(
                rank=rank,
                servers=crew.servers,
                workers=crew.workers,
                store=str(Path(folder) / "store"),
                interface=namespaces.interface,
                address=namespaces.address(rank),
                network=given.network,
                size=given.size,
                seed=given.seed,
                rows=tuple(dataclasses.asdict(row) for row in rows),
                steps=given.steps,
                seconds=given.seconds,
                warm_up=given.warm_up,
            )
            process = _start(job, Path(folder), namespaces)
            ending.callback(_end, process)
            ranks.append(process)
        return list(_follow(crew, ranks, Path(folder), namespaces))


def _start(job: Job, folder: Path, namespaces: Namespaces) -> subprocess.Popen:
    command = [sys.executable, "-m", "lab.threelc_server.rank", json.dumps(dataclasses.asdict(job))]
    with (folder / f"rank-{job.rank}.log").open("wb") as log:
        return subprocess.Popen(
            [*namespaces.command_prefix(job.rank), *command],
            stdin=subprocess.PIPE if job.rank == 0 else subprocess.DEVNULL,
            stdout=subprocess.PIPE if job.rank == 0 else log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the controlling process, which ends them
            env=rank_environment(),
        )


def _end(process: subprocess.Popen) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    process.kill()
    process.wait()


def _follow(crew: Crew, ranks: list[subprocess.Popen], folder: Path, namespaces: Namespaces):
    with selectors.DefaultSelector() as selector:
        selector.register(ranks[0].stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(_SILENCE_SECONDS):
                _kill(ranks)
                raise CrewFailed(f"no row ended for {_SILENCE_SECONDS:.0f} s")
            line = ranks[0].stdout.readline()
            if not line:
                _kill(ranks)
                raise CrewFailed(_last_words(folder, len(ranks)))
            event = json.loads(line)
            if event["event"] == "done":
                return
            if event["event"] == "link":
                namespaces.change_rate(parse_link(event["link"]).bytes_per_second)
                ranks[0].stdin.write(b"\n")
                ranks[0].stdin.flush()
                continue
            print(f"{crew}, {event['link']}: {event['method']}", file=sys.stderr, flush=True)
            yield {"crew": str(crew), **event}


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
