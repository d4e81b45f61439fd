"""Measures the gain from pacing sends at the link's rate.

    python -m lab.probes.link_pacing --link 10mbit [--turns 5] [--patterns direct ring]

Four ranks in network namespaces, behind links of that rate (`tbf`; needs root), exchange LeNet-5's
431,080 values as bfloat16, without computing: with `link=` at the line's rate, which lets no more
leave than the line takes, and without, where TCP finds out by losing packets. Both take turns in
the same processes. Segments are those of a rank's namespace; what was sent again says what it
lost. The bound is the values' bytes by the rate.
"""

import argparse
import secrets
import statistics
import sys
import time
from pathlib import Path

import deltawire
import numpy as np

from lab.command.program import exit_status, make_parser
from lab.data.images import DataError
from lab.ranks.links import Link, parse_link, ring_bytes
from lab.ranks.namespaces import NamespaceError, Namespaces
from lab.ranks.ranks_here import rows_of_ranks

RANKS = 4
SIZES = {"conv1": 520, "conv2": 25_050, "fc1": 400_500, "fc2": 5_010}  # LeNet-5's layers
_PORT = 29_600  # of the first session; namespaces have nobody else
_PAUSE_SECONDS = 0.15  # between exchanges, as long as a network computes: queues are empty then


def exchange(rank: int, network: Namespaces, job: dict, folder: str, pipe) -> None:
    """A rank's life; rank 0 sends a row for each pattern, untold and told.

    Args:
        job: turns, patterns, rate (bytes a second), token.
    """
    network.enter(rank)
    values = np.random.default_rng(rank)
    gradients = {
        name: values.standard_normal(count).astype(np.float32) for name, count in SIZES.items()
    }
    ways = [(pattern, told) for pattern in job["patterns"] for told in (False, True)]
    sessions = [
        deltawire.Session(
            f"{pattern}(bf16)",
            rank=rank,
            world_size=RANKS,
            address=f"{network.address(0)}:{_PORT + place}",
            token=job["token"],
            interface=network.address(rank),
            link=deltawire.LinkShape(job["rate"]) if told else None,
        )
        for place, (pattern, told) in enumerate(ways)
    ]
    taken = [[] for _ in ways]
    for turn in range(job["turns"] + 1):
        for session, rows in zip(sessions, taken, strict=True):
            row = _timed(session, gradients)
            if turn:  # the first one finds the line's rate
                rows.append(row)
    for session in sessions:
        session.close()
    if rank == 0:
        for (pattern, told), rows in zip(ways, taken, strict=True):
            times, sent, again = zip(*rows, strict=True)
            pipe.send(
                {
                    "pattern": pattern,
                    "told": told,
                    "ms": [1e3 * each for each in sorted(times)],
                    "segments": sum(sent),
                    "again": sum(again),
                }
            )


def _timed(session: deltawire.Session, gradients: dict) -> tuple[float, int, int]:
    """(seconds, segments sent, sent again) of one exchange, which all ranks begin together."""
    time.sleep(_PAUSE_SECONDS)
    copies = {name: gradient.copy() for name, gradient in gradients.items()}
    session.all_reduce({"meeting": np.zeros(1, np.float32)})
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
    """Rows of rank 0: pattern, told, ms (of all turns, sorted), segments, again.

    Raises:
        NamespaceError: this machine has no namespaces for us.
        DataError: a rank ended early.
    """
    job = {"turns": turns, "patterns": patterns, "token": secrets.token_bytes(32)}
    with Namespaces(RANKS, link.bytes_per_second) as network:
        job["rate"] = link.bytes_per_second
        return list(rows_of_ranks(exchange, RANKS, 2 * len(patterns), (network, job)))


def run(given: argparse.Namespace) -> None:
    """Measures, and prints the table."""
    rows = measure(given.link, given.patterns, given.turns)
    bound = ring_bytes(2 * sum(SIZES.values()), RANKS) / given.link.bytes_per_second
    print(f"bound: {1e3 * bound:.0f} ms")
    print("| pattern | `link=` | ms (shortest–longest) | sent again |\n|---|---|---:|---:|")
    for row in rows:
        ms = row["ms"]
        print(
            f"| `{row['pattern']}(bf16)` | {'the rate' if row['told'] else '-'} | "
            f"{statistics.median(ms):.0f} ({ms[0]:.0f}–{ms[-1]:.0f}) | "
            f"{row['again'] / row['segments']:.1%} |"
        )


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, or 1 where nothing could be measured."""
    parser = make_parser("lab.probes.link_pacing", __doc__)
    parser.add_argument("--link", type=parse_link, default=parse_link("10mbit"))
    parser.add_argument("--turns", type=int, default=5, help="timed exchanges; default 5")
    parser.add_argument(
        "--patterns", nargs="+", choices=("direct", "ring"), default=["direct", "ring"]
    )
    given = parser.parse_args(arguments)
    if given.turns < 1 or given.link.bytes_per_second is None:
        parser.error("--turns is at least 1, and --link a rate")
    return exit_status("lab.probes.link_pacing", lambda: run(given), NamespaceError, DataError)


if __name__ == "__main__":
    sys.exit(main())
