"""A cell: one network over one link."""

import argparse
import dataclasses
import sys

from lab.probes.ceilings import worker
from lab.ranks.launcher import Launcher
from lab.ranks.links import Link
from lab.ranks.namespaces import Namespaces

_SILENCE_SECONDS = 900.0  # a turn of a few steps of 43 MB over 10 Mbit/s, or a model's broadcast
_WORDS = {"made": "made", "warm-up": "step {steps} to warm up", "turn": "{steps} steps"}  # by event


@dataclasses.dataclass(frozen=True)
class Cell:
    """One network over one link; `given` is the command line."""

    network: str
    link: Link
    given: argparse.Namespace

    def __str__(self) -> str:
        return f"{self.network}, {self.link.text}"


def run_cell(cell: Cell) -> dict:
    """{"network", "link", "ranks", "rows"}: rank 0's figures.

    Raises:
        RanksFailed: a rank ended early, or was silent.
        NamespaceError: this machine has no namespaces for us.
    """
    given = cell.given
    rate = cell.link.bytes_per_second
    job = worker.Job(
        cell.network,
        given.size,
        given.seed,
        tuple(given.methods),
        given.steps,
        given.seconds,
        given.warm_up,
    )
    with (
        Namespaces(given.ranks, rate) as namespaces,
        Launcher(worker.run, given.ranks, namespaces) as ranks,
    ):
        ranks.start(job)
        for event in ranks.messages(_SILENCE_SECONDS):
            if event["event"] == "done":
                rows = event["rows"]
            else:
                words = _WORDS[event["event"]].format(**event)
                print(f"{cell}: {event['method']}, {words}", file=sys.stderr, flush=True)
    return {"network": cell.network, "link": cell.link.text, "ranks": given.ranks, "rows": rows}
