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
import itertools
import json
import signal
import sys
from pathlib import Path

from lab.command.files import write_whole
from lab.command.markdown import table
from lab.command.program import main_of, make_parser
from lab.models.trainings import SIZES, TRAININGS
from lab.probes.ceilings import worker
from lab.probes.ceilings.contestants import AUTO, COMPUTE, PLAIN, check_name
from lab.ranks.launcher import Launcher, RanksFailed
from lab.ranks.links import Link, parse_link
from lab.ranks.namespaces import NamespaceError, Namespaces

_SILENCE_SECONDS = 900.0  # a turn of a few steps of 43 MB over 10 Mbit/s, or a model's broadcast
_WORDS = {"made": "made", "warm-up": "step {steps} to warm up", "turn": "{steps} steps"}  # by event
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


_HEAD = (
    "network, link",
    "method",
    "ms a step (deciles)",
    "times plain's speed",
    "share of the ceiling",
    "MB sent a step",
    "predicted",
)


def table_of(cells: list[dict]) -> str:
    """A line for each method; compute's line has the ceiling."""
    lines = []
    for cell in cells:
        by_name = {row["method"]: row for row in cell["rows"]}
        lines.extend(_line(cell, row, by_name) for row in cell["rows"])
    return table(_HEAD, lines, left=2)


def _line(cell: dict, row: dict, by_name: dict[str, dict]) -> tuple[str, ...]:
    compute, plain = by_name[COMPUTE], by_name.get(PLAIN)
    predicted, measured = row["predicted_ms"], row["measured_ms"]
    label = "compute alone" if row is compute else f"`{row['method']}`"
    if row["spec"] != row["method"] and row["method"] == AUTO:
        label += f": `{row['spec']}`"
    return (
        f"{cell['network']}, {cell['link']}",
        label,
        f"{row['ms']:.0f} ({row['low_ms']:.0f}–{row['high_ms']:.0f})",
        "-" if plain is None else f"{plain['ms'] / row['ms']:.2f}",
        f"{compute['ms'] / row['ms']:.0%}",
        f"{row['bytes_sent'] / 1e6:.3f}",
        f"{predicted:.0f} ({predicted / measured - 1:+.0%})" if predicted and measured else "-",
    )


def run_cell(network: str, link: Link, given: argparse.Namespace) -> dict:
    """One network over one link: {"network", "link", "ranks", "rows"}, rank 0's figures.

    Raises:
        RanksFailed: a rank ended early, or was silent.
        NamespaceError: this machine has no namespaces for us.
    """
    most = (given.steps, given.seconds, given.warm_up)
    job = worker.Job(network, given.size, given.seed, tuple(given.methods), *most)
    with (
        Namespaces(given.ranks, link.bytes_per_second) as namespaces,
        Launcher(worker.run, given.ranks, namespaces) as ranks,
    ):
        ranks.start(job)
        for event in ranks.messages(_SILENCE_SECONDS):
            if event["event"] == "done":
                rows = event["rows"]
            else:
                words = f"{event['method']}, {_WORDS[event['event']].format(**event)}"
                print(f"{network}, {link.text}: {words}", file=sys.stderr, flush=True)
    return {"network": network, "link": link.text, "ranks": given.ranks, "rows": rows}


def run(given: argparse.Namespace) -> int:
    """Measures cell by cell; each is kept at once, and the table shows what there is, also after
    Ctrl-C or SIGTERM. Returns 1 if ranks of a cell failed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    found, status = [], 0
    try:
        for network, link in itertools.product(given.networks, given.links):
            try:
                found.append(run_cell(network, link, given))
            except RanksFailed as cause:
                print(f"{network}, {link.text}: {cause}", file=sys.stderr)
                status = 1
            write_whole(given.out, json.dumps(found, indent=1) + "\n")
    finally:
        if found:
            print(table_of(found))
    return status


main = main_of("lab.probes.ceilings", parse, run, NamespaceError)


if __name__ == "__main__":
    sys.exit(main())
