"""Measures what encryption costs: an exchange with and without, by turns in the same processes.

    python -m lab.probes.encryption [--link 1gbit] [--ranks 2 4] [--turns 9] [--spec "direct(fp32)"]

Ranks exchange one tensor of 4 million float32 values, without computing: over loopback, or with
`--link` in network namespaces behind links of that rate (`tbf`; needs root). Shown are the median
time of rank 0, the rate at which it sent, and the processor time that all threads of rank 0 took.
"""

import argparse
import dataclasses
import secrets
import statistics
import sys
import time

import deltawire
import numpy as np

from lab.command.program import main_of, make_parser
from lab.ranks.launcher import Launcher, RanksFailed
from lab.ranks.links import Link, parse_link
from lab.ranks.namespaces import NamespaceError, Namespaces
from lab.ranks.rank import Line, Place

VALUES = 4_000_000
WAYS = ("off", "required")
_PORTS = 29_700  # of the first session


@dataclasses.dataclass(frozen=True)
class Job:
    """The parameters of every rank."""

    ranks: int
    turns: int
    spec: str
    server: str  # rank 0's address
    port: int
    token: bytes


def exchange(place: Place, line: Line, job: Job) -> None:
    """A rank: rank 0 sends a row for each way."""
    gradient = np.random.default_rng(place.rank).standard_normal(VALUES).astype(np.float32)
    sessions = [
        deltawire.Session(
            job.spec,
            rank=place.rank,
            world_size=job.ranks,
            address=f"{job.server}:{job.port + number}",
            token=job.token,
            interface=place.address,
            encryption=encryption,
        )
        for number, encryption in enumerate(WAYS)
    ]
    taken = [[] for _ in WAYS]
    for turn in range(job.turns + 1):
        for session, rows in zip(sessions, taken, strict=True):
            values = gradient.copy()
            session.all_reduce({"barrier": np.zeros(1, np.float32)})
            sent, used = session.metrics()["bytes_sent"], time.process_time()
            began = time.perf_counter()
            session.all_reduce({"values": values})
            took = time.perf_counter() - began
            used = time.process_time() - used
            if turn:
                rows.append((took, used, session.metrics()["bytes_sent"] - sent))
    for session in sessions:
        session.close()
    if place.rank == 0:
        for encryption, rows in zip(WAYS, taken, strict=True):
            line.send((encryption, *zip(*rows, strict=True)))


def measure(link: Link | None, ranks: int, turns: int, spec: str) -> list[tuple]:
    """Rows of rank 0: the setting, and of each turn seconds, processor seconds and bytes sent.

    Raises:
        NamespaceError: this machine has no namespaces for us.
        RanksFailed: a rank ended early.
    """
    token = secrets.token_bytes(32)
    if link is None:
        with Launcher(exchange, ranks) as started:
            port = _PORTS + 10 * ranks
            started.start(Job(ranks, turns, spec, "127.0.0.1", port, token))
            return list(started.messages())
    with (
        Namespaces(ranks, link.bytes_per_second) as network,
        Launcher(exchange, ranks, network) as started,
    ):
        started.start(Job(ranks, turns, spec, network.address(0), _PORTS, token))
        return list(started.messages())


def run(given: argparse.Namespace) -> None:
    """Measures, and prints the table."""
    print("| ranks | encryption | ms (shortest–longest) | GB/s sent | processor ms |")
    print("|---:|---|---:|---:|---:|")
    for ranks in given.ranks:
        for encryption, taken, used, sent in measure(given.link, ranks, given.turns, given.spec):
            ms = sorted(1e3 * each for each in taken)
            rate = statistics.median(sent) / statistics.median(taken) / 1e9
            print(
                f"| {ranks} | {encryption} | {statistics.median(ms):.1f} "
                f"({ms[0]:.1f}–{ms[-1]:.1f}) | {rate:.2f} | {1e3 * statistics.median(used):.1f} |",
                flush=True,
            )


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.encryption", __doc__)
    parser.add_argument("--link", type=parse_link, help="default: the loopback")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--turns", type=int, default=9, help="timed exchanges; default 9")
    parser.add_argument("--spec", default="direct(fp32)")
    given = parser.parse_args(arguments)
    if given.turns < 1 or min(given.ranks) < 2:
        parser.error("--turns is at least 1, and --ranks are at least 2")
    return given


main = main_of("lab.probes.encryption", parse, run, NamespaceError, RanksFailed)


if __name__ == "__main__":
    sys.exit(main())
