"""Measures sessions of many ranks: how long they take to meet, what a rank holds, and how long a
step takes, all as processes of this machine.

    python -m lab.probes.width [--ranks 16 64 128] [--steps 5] [--specs "direct(fp32)" ...]

Every rank exchanges one tensor of a million float32 values, and then a step of a single value,
which is little else than the vote. Shown are the longest time to meet; descriptors and memory
(private to the process) that the session of a rank took, at most; the median of rank 0's steps;
and the processor time of a step, the sum of all ranks' medians: where ranks share cores, a step
takes that divided by the cores, and more machines would be faster.
"""

import argparse
import dataclasses
import os
import secrets
import statistics
import sys
import time
from pathlib import Path

import deltawire
import numpy as np

from lab.command.program import main_of, make_parser
from lab.ranks.launcher import Launcher, RanksFailed
from lab.ranks.rank import Line, Place

VALUES = 1_000_000
SPECS = ("direct(fp32)", "direct(3lc)", "hierarchical:group=8(3lc)")
_PORT = 29_500
_SECONDS = 600.0  # that a rank may take for anything


@dataclasses.dataclass(frozen=True)
class Job:
    """The parameters of every rank."""

    specs: tuple[str, ...]
    steps: int
    token: bytes


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _private_bytes() -> int:
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("this kernel doesn't say how much memory a process has")


def take_steps(session: deltawire.Session, values: np.ndarray, steps: int) -> tuple:
    """(seconds of each step, the median of their processor seconds), after one not counted."""
    name = f"{values.size} values"
    session.all_reduce({name: values.copy()})
    seconds, used = [], []
    for _ in range(steps):
        given = values.copy()
        began, had = time.perf_counter(), time.process_time()
        session.all_reduce({name: given})
        seconds.append(time.perf_counter() - began)
        used.append(time.process_time() - had)
    return seconds, statistics.median(used)


def member(place: Place, line: Line, job: Job) -> None:
    """A rank: sends a row for each spec."""
    values = np.random.default_rng(place.rank).standard_normal(VALUES).astype(np.float32)
    for number, spec in enumerate(job.specs):
        line.receive()  # all are here
        held, descriptors = _private_bytes(), _descriptors()
        began = time.perf_counter()
        with deltawire.Session(
            spec,
            rank=place.rank,
            world_size=place.ranks,
            address=f"{place.address}:{_PORT + number}",
            token=job.token,
            threads=1,
            timeout=_SECONDS,
            connect_timeout=_SECONDS,
        ) as session:
            met = time.perf_counter() - began
            descriptors = _descriptors() - descriptors
            steps, used = take_steps(session, values, job.steps)
            held = _private_bytes() - held
            votes, used_by_votes = take_steps(session, values[:1], job.steps)
        row = (met, descriptors, held, steps, used, votes, used_by_votes)
        line.send(row)


def measure(ranks: int, job: Job) -> list[list[tuple]]:
    """By spec, the rows of all ranks.

    Raises:
        RanksFailed: a rank ended early.
    """
    with Launcher(member, ranks) as started:
        started.start(job)
        found = []
        for _ in job.specs:
            started.send("begin")
            rows = [started.receive(_SECONDS, [rank])[1] for rank in range(ranks)]
            found.append(rows)
        return found


def row(ranks: int, spec: str, rows: list[tuple]) -> str:
    """A line of the table, from the rows of all ranks."""
    met, descriptors, held, steps, used, votes, used_by_votes = zip(*rows, strict=True)
    return (
        f"| {ranks} | `{spec}` | {max(met):.2f} | {max(descriptors)} | {max(held) / 2**20:.1f} | "
        f"{1e3 * statistics.median(steps[0]):.0f} | {1e3 * sum(used):.1f} | "
        f"{1e3 * statistics.median(votes[0]):.1f} | {1e3 * sum(used_by_votes):.2f} |"
    )


def run(given: argparse.Namespace) -> None:
    """Measures, and prints the table."""
    print(
        "| ranks | exchange | meet, s | descriptors a rank | MiB a rank | step, ms | its processor "
        "ms, all ranks | step of one value, ms | its processor ms |"
    )
    print("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    job = Job(tuple(given.specs), given.steps, secrets.token_bytes(32))
    for ranks in given.ranks:
        for spec, rows in zip(given.specs, measure(ranks, job), strict=True):
            print(row(ranks, spec, rows), flush=True)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.width", __doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 64, 128])
    parser.add_argument("--steps", type=int, default=5, help="timed; default 5")
    parser.add_argument("--specs", nargs="+", default=list(SPECS), help="patterns with codecs")
    given = parser.parse_args(arguments)
    if min(given.ranks) < 2 or given.steps < 1:
        parser.error("--ranks are at least 2, and --steps at least 1")
    return given


main = main_of("lab.probes.width", parse, run, RanksFailed)


if __name__ == "__main__":
    sys.exit(main())
