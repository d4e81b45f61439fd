"""Tables 4 to 7 and figures 4 and 6 to 9 of FastSGD's paper, run again.

    python -m lab.papers.fastsgd                                    all parts, two links: hours
    python -m lab.papers.fastsgd --parts convergence --link 100mbit --rows 200000 --epochs 2

Rows are drawn in the shape of KDD12 (`deltawire generate kdd12`). Every worker is a process of
`deltawire train linear` in a network namespace of its own, behind a link of the given rate in both
directions (`tbf`; needs root). Adam, L2, minibatches of 10 % of the rows, 70 % of which train, as
in the paper's section 4.1. "plain" sends uncompressed pairs of key and value; convergence is also
measured with weights at owners, losslessly. Measured trainings are kept in OUT/trainings.json and
not repeated; OUT/report.md has the tables with the paper's numbers, OUT/*.svg the figures. All
workers share this machine's cores.
"""

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path

from lab.command.program import make_parser, measure_and_show
from lab.papers.fastsgd.parts import PARTS, Study, name_of
from lab.papers.fastsgd.trainings import Data, Training, TrainingFailed, run
from lab.ranks.links import parse_link
from lab.ranks.namespaces import NamespaceError

_CODECS = ("plain", "logquant", "sketchml", "topk:k=0.1%", "fastsgd:tau=128")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.papers.fastsgd", __doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--link", nargs="+", type=_link, default=["1gbit", "100mbit"])
    parser.add_argument(
        "--workers",
        nargs="+",
        type=int,
        default=[4, 3, 6, 8],
        help="of figure 9; all else has the first number",
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=5_468_646, help="a tenth of KDD12's")
    parser.add_argument("--codecs", nargs="+", default=list(_CODECS), metavar="SPEC")
    parser.add_argument(
        "--losses",
        nargs="+",
        choices=("squared", "logistic", "hinge"),
        default=["squared", "logistic", "hinge"],
    )
    parser.add_argument("--epochs", type=int, default=3, help="where time is measured alone")
    parser.add_argument("--most-epochs", type=int, default=20, help="where convergence is")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--l2", type=float, default=1e-5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/fastsgd"))
    given = parser.parse_args(arguments)
    if min(given.workers) < 1 or given.rows < 1000 or given.epochs < 1 or given.features < 11:
        parser.error("--rows is at least 1000, --features 11, --workers and --epochs 1")
    if not any(name_of(spec) == "FastSGD" for spec in given.codecs):
        parser.error("--codecs lacks fastsgd, which all others are compared with")
    if "plain" not in given.codecs:
        parser.error("--codecs lacks plain, whose loss all others are to reach")
    return given


def _link(text: str) -> str:
    return parse_link(text).text


class Results:
    """The measured trainings, in a file."""

    def __init__(self, given: argparse.Namespace, data: Data) -> None:
        self._path = given.out / "trainings.json"
        self._data = data
        self._options = ("--lr", given.lr, "--l2", given.l2, "--seed", given.seed)
        self._shared = {"rows": given.rows, "options": list(map(str, self._options))}
        kept = json.loads(self._path.read_text()) if self._path.exists() else []
        self._known = {self._key(each["training"], each["shared"]): each["report"] for each in kept}
        self._kept = kept

    def of(self, training: Training) -> dict:
        """A training's figures; runs it unless they are known."""
        settings = dataclasses.asdict(training)
        key = self._key(settings, self._shared)
        if key not in self._known:
            print(f"{_words(training)} ...", file=sys.stderr, flush=True)
            report = run(training, self._data, self._options)
            self._known[key] = report
            self._kept.append({"training": settings, "shared": self._shared, "report": report})
            self._path.write_text(json.dumps(self._kept) + "\n")
        return self._known[key]

    @staticmethod
    def _key(training: dict, shared: dict) -> str:
        return json.dumps([training, shared], sort_keys=True)


def _words(training: Training) -> str:
    place = f"{training.workers} workers, {training.link}"
    return f"{training.codec}, {training.loss}, {place}, {training.features:,} features"


def measure(given: argparse.Namespace, page: list[str]) -> None:
    """Runs all parts over all links; adds what is done to the page, and writes files."""
    scale = f"{given.rows:,} rows, {given.features:,} features, lr {given.lr:g}, L2 {given.l2:g}"
    page += [f"# FastSGD's tables again: {scale}, {os.cpu_count()} cores", ""]
    data = Data(given.out, given.rows, given.seed)
    results = Results(given, data)
    for link in given.link:
        for part in given.parts:
            title, work = PARTS[part]
            found = work(Study(given, data, link, results.of))
            page += [f"## {title}, {link}", "", *found.lines, ""]
            for name, svg in found.figures.items():
                (given.out / f"figure-{name}-{link}.svg").write_text(svg)
            (given.out / "report.md").write_text("\n".join(page))


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 with all parts, 1 if one failed, 130 after Ctrl-C."""
    given = parse(sys.argv[1:] if arguments is None else arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    return measure_and_show(
        "lab.papers.fastsgd",
        lambda page: measure(given, page),
        "\n".join,
        TrainingFailed,
        NamespaceError,
    )


if __name__ == "__main__":
    sys.exit(main())
