"""A crew: so many workers and servers, and the rows that they find."""

import argparse
import dataclasses
import sys
from collections.abc import Iterator

from lab.papers.threelc.rows import Row
from lab.ranks.linked_ranks import LinkedRanks
from lab.ranks.links import parse_link

_SILENCE_SECONDS = 900.0  # more than any row, and than all ranks' imports, takes


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
        RanksFailed: a rank ended early, or was silent.
        NamespaceError: this machine has no namespaces for us.
    """
    count, rate = crew.workers + crew.servers, parse_link(rows[0].link).bytes_per_second
    with LinkedRanks("lab.papers.threelc.rank", count, rate, _SILENCE_SECONDS) as ranks:
        ranks.start(
            servers=crew.servers,
            network=given.network,
            size=given.size,
            seed=given.seed,
            rows=tuple(dataclasses.asdict(row) for row in rows),
            steps=given.steps,
            seconds=given.seconds,
            warm_up=given.warm_up,
        )
        return list(_follow(crew, ranks))


def _follow(crew: Crew, ranks: LinkedRanks) -> Iterator[dict]:
    for event in ranks.events():
        if event["event"] == "link":
            ranks.namespaces.change_rate(parse_link(event["link"]).bytes_per_second)
            ranks.go_on()
        elif event["event"] == "row":
            print(f"{crew}, {event['link']}: {event['method']}", file=sys.stderr, flush=True)
            yield {"crew": str(crew), **event}
