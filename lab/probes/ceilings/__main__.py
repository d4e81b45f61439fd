"""Steps over slow links, and their ceiling: how fast they would be if communication took no time.

    python -m lab.probes.ceilings                                   all networks and links: hours
    python -m lab.probes.ceilings --networks lenet5 --links 100mbit --seconds 20

Every rank lives in a network namespace of its own, behind a link of the given rate in both
directions (`tbf`; needs root). The contestants take turns of a few steps in the same processes, so
that a disturbance hits all of them. "compute" exchanges nothing; plain DDP's time divided by its
time is the ceiling, the most that any compression could gain; a method's "share" is compute's time
divided by its own: 100 % reaches the ceiling. The prediction of "auto" is compared with its own
measurement, without the optimizer. Bytes are what a rank's interface sent in a step, headers
included.

Methods: "barrier" is compute and an all-reduce of one value, so that a step waits for the slowest
rank, as with any exchange; "plain-again" is plain DDP once more, to show random variation;
"torch-fp16" and "torch-powersgd-RANK" are PyTorch's own hooks (the latter with one bucket for all
gradients: with several it hangs on Gloo); any spec of deltawire's.
"""

import argparse
import sys
from pathlib import Path

from lab.command.program import make_parser, measure_and_show, measure_each
from lab.models.trainings import SIZES, TRAININGS
from lab.probes.ceilings.cells import Cell, run_cell
from lab.probes.ceilings.contestants import check_name
from lab.probes.ceilings.table import table_of
from lab.ranks.launcher import RanksFailed
from lab.ranks.links import parse_link
from lab.ranks.namespaces import NamespaceError

_NETWORKS = ("lenet5", "resnet20", "lstm", "transformer")
_LINKS = ("10mbit", "100mbit", "1gbit")
_METHODS = (
    *("barrier", "plain", "plain-again", "torch-fp16", "torch-powersgd-1", "torch-powersgd-4"),
    *("3lc", "3lc:s=1.75", "gather(sbc:p=1%)", "ring(gcomp)", "auto"),
)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.ceilings", __doc__)
    parser.add_argument("--networks", nargs="+", choices=TRAININGS, default=list(_NETWORKS))
    parser.add_argument(
        "--links", nargs="+", type=parse_link, default=[parse_link(link) for link in _LINKS]
    )
    parser.add_argument("--methods", nargs="+", default=list(_METHODS), metavar="NAME")
    parser.add_argument("--ranks", type=int, default=4, help="default 4")
    parser.add_argument("--size", choices=SIZES, default="large", help="default large")
    parser.add_argument("--steps", type=int, default=50, help="timed ones; default 50")
    parser.add_argument(
        "--seconds", type=float, default=60, help="most for a method's timed steps; default 60"
    )
    parser.add_argument("--warm-up", type=int, default=5, help="steps before; default 5")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--out", type=Path, default=Path("out/ceilings.json"))
    given = parser.parse_args(arguments)
    if given.ranks < 2 or given.steps < 1 or given.warm_up < 1:
        parser.error("--ranks is at least 2, --steps and --warm-up are at least 1")
    for name in given.methods:
        try:
            check_name(name)
        except ValueError as cause:
            parser.error(str(cause))
    return given


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 with all cells, 1 if some failed, 130 after Ctrl-C."""
    given = parse(sys.argv[1:] if arguments is None else arguments)
    cells = [Cell(network, link, given) for network in given.networks for link in given.links]

    def measure(found: list[dict]) -> int:
        return measure_each(cells, lambda cell: [run_cell(cell)], found, given.out, RanksFailed)

    return measure_and_show("lab.probes.ceilings", measure, table_of, NamespaceError)


if __name__ == "__main__":
    sys.exit(main())
