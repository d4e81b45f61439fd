"""A cell: one network over one link."""

import argparse
import dataclasses
import sys

from lab.ranks.linked_ranks import LinkedRanks
from lab.ranks.links import Link

_SILENCE_SECONDS = 900.0  # a turn of a few steps of 43 MB over 10 Mbit/s, or a model's broadcast
_WORDS = {"made": "made", "warm-up": "step {steps} to warm up", "turn": "{steps} steps"}  # by event


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
        RanksFailed: a rank ended early, or was silent.
        NamespaceError: this machine has no namespaces for us.
    """
    given = cell.given
    rate = cell.link.bytes_per_second
    with LinkedRanks("lab.probes.ceilings.worker", given.ranks, rate, _SILENCE_SECONDS) as ranks:
        ranks.start(
            network=cell.network,
            size=given.size,
            seed=given.seed,
            methods=tuple(given.methods),
            steps=given.steps,
            seconds=given.seconds,
            warm_up=given.warm_up,
        )
        for event in ranks.events():
            if event["event"] != "done":
                words = _WORDS[event["event"]].format(**event)
                print(f"{cell}: {event['method']}, {words}", file=sys.stderr, flush=True)
        rows = event["rows"]
    return {"network": cell.network, "link": cell.link.text, "ranks": given.ranks, "rows": rows}
