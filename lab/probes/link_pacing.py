"""Measures the gain from pacing sends at the link's rate.

    python -m lab.probes.link_pacing --link 10mbit [--turns 5] [--patterns direct ring]

Four ranks in network namespaces, behind links of that rate (`tbf`; needs root), exchange LeNet-5's
431,080 values as bfloat16, without computing: with `link=` at the line's rate, which sends no
faster than the line, and without, where TCP finds the rate by losing packets. Both alternate in the
same processes. "Sent again" is the share of a rank's TCP segments that were retransmitted. The
bound is the bytes of the values divided by the rate.
"""

import argparse
import dataclasses
import secrets
import statistics
import sys
import time
from pathlib import Path

import deltawire
import numpy as np

from lab.command.program import main_of, make_parser
from lab.ranks.launcher import Launcher, RanksFailed
from lab.ranks.links import Link, parse_link, ring_bytes
from lab.ranks.namespaces import NamespaceError, Namespaces
from lab.ranks.rank import Line, Place

RANKS = 4
SIZES = {"conv1": 520, "conv2": 25_050, "fc1": 400_500, "fc2": 5_010}  # LeNet-5's layers
_PORT = 29_600  # of the first session; the namespaces have no other programs
_PAUSE_SECONDS = 0.15  # between exchanges, like a network's computation, so that queues are empty


@dataclasses.dataclass(frozen=True)
class Job:
    """The parameters of every rank."""

    turns: int
    patterns: list[str]
    bytes_per_second: float
    server: str  # rank 0's address
    token: bytes


def exchange(place: Place, line: Line, job: Job) -> None:
    """A rank: rank 0 sends a row for each pattern, without and with `link=`."""
    values = np.random.default_rng(place.rank)
    gradients = {
        name: values.standard_normal(count).astype(np.float32) for name, count in SIZES.items()
    }
    ways = [(pattern, paced) for pattern in job.patterns for paced in (False, True)]
    sessions = [
        deltawire.Session(
            f"{pattern}(bf16)",
            rank=place.rank,
            world_size=RANKS,
            address=f"{job.server}:{_PORT + number}",
            token=job.token,
            interface=place.address,
            link=deltawire.LinkShape(job.bytes_per_second) if paced else None,
        )
        for number, (pattern, paced) in enumerate(ways)
    ]
    taken = [[] for _ in ways]
    for turn in range(job.turns + 1):
        for session, rows in zip(sessions, taken, strict=True):
            row = _timed(session, gradients)
            if turn:  # the first one is TCP's search for the link's rate
                rows.append(row)
    for session in sessions:
        session.close()
    if place.rank == 0:
        for (pattern, paced), rows in zip(ways, taken, strict=True):
            times, sent, again = zip(*rows, strict=True)
            line.send(
                {
                    "pattern": pattern,
                    "paced": paced,
                    "ms": [1e3 * each for each in sorted(times)],
                    "segments": sum(sent),
                    "again": sum(again),
                }
            )


def _timed(session: deltawire.Session, gradients: dict) -> tuple[float, int, int]:
    """(seconds, segments sent, sent again) of one exchange, which all ranks start together."""
    time.sleep(_PAUSE_SECONDS)
    copies = {name: gradient.copy() for name, gradient in gradients.items()}
    session.all_reduce({"barrier": np.zeros(1, np.float32)})
    sent, again = segments()
    started = time.perf_counter()
    session.all_reduce(copies)
    took = time.perf_counter() - started
    sent_then, again_then = segments()
    return took, sent_then - sent, again_then - again


def segments() -> tuple[int, int]:
    """(sent, sent again) by TCP in the calling thread's network namespace."""
    text = Path("/proc/thread-self/net/snmp").read_text()
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    counts = dict(zip(names, values, strict=True))
    return int(counts["OutSegs"]), int(counts["RetransSegs"])


def measure(link: Link, patterns: list[str], turns: int) -> list[dict]:
    """Rows of rank 0: pattern, paced, ms (of all turns, sorted), segments, again.

    Raises:
        NamespaceError: this machine has no namespaces for us.
        RanksFailed: a rank ended early.
    """
    rate = link.bytes_per_second
    with Namespaces(RANKS, rate) as network, Launcher(exchange, RANKS, network) as ranks:
        ranks.start(Job(turns, patterns, rate, network.address(0), secrets.token_bytes(32)))
        return list(ranks.messages())


def run(given: argparse.Namespace) -> None:
    """Measures, and prints the table."""
    rows = measure(given.link, given.patterns, given.turns)
    bound = ring_bytes(2 * sum(SIZES.values()), RANKS) / given.link.bytes_per_second
    print(f"bound: {1e3 * bound:.0f} ms")
    print("| pattern | `link=` | ms (shortest–longest) | sent again |\n|---|---|---:|---:|")
    for row in rows:
        ms = row["ms"]
        print(
            f"| `{row['pattern']}(bf16)` | {'the rate' if row['paced'] else '-'} | "
            f"{statistics.median(ms):.0f} ({ms[0]:.0f}–{ms[-1]:.0f}) | "
            f"{row['again'] / row['segments']:.1%} |"
        )


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.link_pacing", __doc__)
    parser.add_argument("--link", type=parse_link, default=parse_link("10mbit"))
    parser.add_argument("--turns", type=int, default=5, help="timed exchanges; default 5")
    parser.add_argument(
        "--patterns", nargs="+", choices=("direct", "ring"), default=["direct", "ring"]
    )
    given = parser.parse_args(arguments)
    if given.turns < 1 or given.link.bytes_per_second is None:
        parser.error("--turns is at least 1, and --link a rate")
    return given


main = main_of("lab.probes.link_pacing", parse, run, NamespaceError, RanksFailed)


if __name__ == "__main__":
    sys.exit(main())
