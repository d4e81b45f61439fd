"""3LC's tables 1 and 2 with our servers and workers, over real slow links.

    python -m lab.papers.threelc                    4 and 8 workers, 1 and 2 servers: half an hour
    python -m lab.papers.threelc --clusters 4:1 --links 100mbit --seconds 5

Every rank is a process in a network namespace of its own, behind a link of the given rate in both
directions (`tbf`; needs root). A row is one way to exchange: the parameter server with a codec in
both directions, or `direct` between the workers, without servers. "push" and "pull" are the first
worker's messages per step; "server" is the busiest server's interface, headers included; for
`direct` it is the first worker's interface. "encodes" counts the changes that all servers compress
in a step, for all workers together. The first cluster also shows the effect of overlap, and of a
slow worker.
"""

import argparse
import sys
from pathlib import Path

import deltawire

from lab.command.program import make_parser, measure_and_show, measure_each
from lab.models.trainings import SIZES, TRAININGS
from lab.papers.threelc.cluster import Cluster, run_cluster
from lab.papers.threelc.rows import Row, rows_over, special_rows
from lab.papers.threelc.table import table_of
from lab.ranks.launcher import RanksFailed
from lab.ranks.links import parse_link
from lab.ranks.namespaces import NamespaceError

_SPECS = ("fp32", "int8", "3lc:s=1.00", "3lc:s=1.75")


def _cluster(text: str) -> Cluster:
    workers, _, servers = text.partition(":")
    if not (workers.isdecimal() and servers.isdecimal() and int(workers) > 1 and int(servers) > 0):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a cluster; write workers:servers, e.g. 4:1"
        )
    return Cluster(int(workers), int(servers))


def _link(text: str) -> str:
    if parse_link(text).bytes_per_second is None:
        raise argparse.ArgumentTypeError("a rate is needed, e.g. 100mbit")
    return parse_link(text).text


def _spec(text: str) -> str:
    try:
        deltawire.canonical_spec(text)
    except deltawire.InvalidArgumentError as cause:
        raise argparse.ArgumentTypeError(str(cause)) from cause
    return text


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.papers.threelc", __doc__)
    clusters = [Cluster(4, 1), Cluster(4, 2), Cluster(8, 2)]
    parser.add_argument(
        "--clusters", nargs="+", type=_cluster, default=clusters, metavar="WORKERS:SERVERS"
    )
    links = ["10mbit", "100mbit", "1gbit"]
    parser.add_argument("--links", nargs="+", type=_link, default=links)
    parser.add_argument("--specs", nargs="+", type=_spec, default=list(_SPECS), metavar="SPEC")
    parser.add_argument("--network", choices=TRAININGS, default="lenet5", help="default lenet5")
    parser.add_argument("--size", choices=SIZES, default="large", help="default large")
    parser.add_argument("--slowness", type=int, default=5, help="of the slow worker; default 5")
    parser.add_argument("--steps", type=int, default=50, help="timed ones, at most; default 50")
    parser.add_argument(
        "--seconds", type=float, default=8, help="of a row's timed steps, about; default 8"
    )
    parser.add_argument("--warm-up", type=int, default=2, help="steps before; default 2")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--out", type=Path, default=Path("out/threelc_server.json"))
    given = parser.parse_args(arguments)
    if given.steps < 1 or given.warm_up < 1 or given.slowness < 2:
        parser.error("--steps and --warm-up are at least 1, --slowness at least 2")
    return given


def rows_of(cluster: Cluster, given: argparse.Namespace) -> list[Row]:
    """A cluster's rows, grouped by link. The first cluster also has the special ones."""
    rows = rows_over(given.links, given.specs)
    if cluster is given.clusters[0]:
        rows += special_rows(given.links, given.specs[-1], given.slowness)
    return sorted(rows, key=lambda row: given.links.index(row.link))


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 with all clusters, 1 if some failed, 130 after Ctrl-C."""
    given = parse(sys.argv[1:] if arguments is None else arguments)

    def measure(found: list[dict]) -> int:
        def run(cluster: Cluster) -> list[dict]:
            return run_cluster(cluster, rows_of(cluster, given), given)

        return measure_each(given.clusters, run, found, given.out, RanksFailed)

    return measure_and_show("lab.papers.threelc", measure, table_of, NamespaceError)


if __name__ == "__main__":
    sys.exit(main())
