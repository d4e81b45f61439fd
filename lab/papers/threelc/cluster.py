"""A cluster of workers and servers, and the rows that it measures."""

import argparse
import dataclasses
import sys
from collections.abc import Iterator

from lab.papers.threelc import rank
from lab.papers.threelc.rows import Row
from lab.ranks.launcher import Launcher
from lab.ranks.links import parse_link
from lab.ranks.namespaces import Namespaces

_SILENCE_SECONDS = 900.0  # longer than any row, and than all ranks' imports


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The number of ranks of each kind."""

    workers: int
    servers: int

    def __str__(self) -> str:
        return f"{self.workers} workers, {self.servers} server" + "s" * (self.servers > 1)


def run_cluster(cluster: Cluster, rows: list[Row], given: argparse.Namespace) -> list[dict]:
    """Measures the rows, which are grouped by link.

    Raises:
        RanksFailed: a rank ended early, or was silent.
        NamespaceError: this machine has no namespaces for us.
    """
    count, rate = cluster.workers + cluster.servers, parse_link(rows[0].link).bytes_per_second
    job = rank.Job(
        servers=cluster.servers,
        network=given.network,
        size=given.size,
        seed=given.seed,
        rows=tuple(rows),
        steps=given.steps,
        seconds=given.seconds,
        warm_up=given.warm_up,
    )
    with Namespaces(count, rate) as namespaces, Launcher(rank.run, count, namespaces) as ranks:
        ranks.start(job)
        return list(_follow(cluster, ranks))


def _follow(cluster: Cluster, ranks: Launcher) -> Iterator[dict]:
    for event in ranks.messages(_SILENCE_SECONDS):
        if event["event"] == "link":
            ranks.namespaces.change_rate(parse_link(event["link"]).bytes_per_second)
            ranks.send_to(0, "go on")
        elif event["event"] == "row":
            print(f"{cluster}, {event['link']}: {event['method']}", file=sys.stderr, flush=True)
            yield {"cluster": str(cluster), **event}
