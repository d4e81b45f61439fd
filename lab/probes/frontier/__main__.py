"""Loss against bytes and against computed time, of DDP and of rounds of local steps: a page.

    python -m lab.probes.frontier
    python -m lab.probes.frontier --add rows.json --step-ms 18 --step-words "one core"

It reads the files of --results, which hold rows of `lab.probes.local_rounds`, and writes the page
and its plots. --add takes further rows first. Times are computed from a step's time and the bytes
of exchanges (see `times.py`); nothing is trained here.
"""

import argparse
import sys
from pathlib import Path

from lab.command.program import main_of, make_parser
from lab.data.images import DataError
from lab.probes.frontier import results
from lab.probes.frontier.page import Page
from lab.probes.frontier.times import Line

_LINES = [Line(mbit, latency_ms=20.0) for mbit in (1, 10, 100)]
_DOCS = Path(__file__).resolve().parents[3] / "docs" / "results"


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.frontier", __doc__)
    parser.add_argument("--results", type=Path, default=_DOCS / "frontier", help="a folder")
    parser.add_argument("--page", type=Path, default=_DOCS / "frontier.md")
    parser.add_argument("--add", type=Path, metavar="FILE", help="local_rounds' rows.json")
    parser.add_argument("--step-ms", type=float, help="of one worker's step")
    parser.add_argument("--step-words", help="where --step-ms is from")
    given = parser.parse_args(arguments)
    if (given.step_ms is None) != (given.step_words is None):
        parser.error("--step-ms and --step-words belong together")
    if given.add is None and given.step_ms is not None:
        parser.error("--step-ms belongs to --add")
    if given.step_ms is not None and given.step_ms <= 0:
        parser.error("--step-ms is above 0")
    return given


def run(given: argparse.Namespace) -> None:
    """Writes the page."""
    if given.add is not None:
        results.add(given.results, given.add, given.step_ms, given.step_words)
    files = sorted(given.results.glob("*.json"))
    if not files:
        raise DataError(f"{given.results} has no results: give --add, too")
    sizes = sorted(map(results.read, files), key=lambda size: size.parameters)
    Page(sizes, _LINES).write(given.page)
    print(given.page)


main = main_of("lab.probes.frontier", parse, run, DataError)


if __name__ == "__main__":
    sys.exit(main())
