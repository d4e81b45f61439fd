"""The tables and figures of a paper, run again; and its page.

    python -m lab.papers threelc                         every table of 3LC, in small
    python -m lab.papers sbc --table 2 --scale hours     one table, larger
    python -m lab.papers page sbc                        docs/results/papers/sbc.md from sbc.json
    python -m lab.papers page all                        all pages, and summary.md

Every finished run is written to OUT/PAPER.json at once, so Ctrl-C or a kill loses one run, and the
same command goes on with the others; OUT/PAPER.md has the page.

Data: $DELTAWIRE_DATA (mnist/, cifar-10-batches-bin/, ptb/, shakespeare/, sst2/), and Fashion-MNIST
from Debian's package. Runs over links need root (network namespaces). A run that can't be made here
is named and left out.
"""

import argparse
import importlib
import sys
from pathlib import Path

from lab.command.files import write_whole
from lab.command.paths import REPOSITORY, CommandFailed
from lab.command.program import main_of, make_parser
from lab.data.images import DataError
from lab.papers.declaration import Paper
from lab.papers.page import Page
from lab.papers.results import Results, ResultsError
from lab.papers.schedule import make_missing
from lab.papers.summary import summary
from lab.ranks.launcher import RanksFailed
from lab.ranks.namespaces import NamespaceError

PAPERS = ("threelc", "sbc", "gcomp", "fastsgd")
PAGES = REPOSITORY / "docs" / "results" / "papers"


def load_paper(name: str) -> Paper:
    """The declaration of a paper."""
    return importlib.import_module(f"lab.papers.{name}.paper").PAPER


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.papers", __doc__)
    parser.add_argument("paper", choices=(*PAPERS, "page"), metavar="PAPER", help=", ".join(PAPERS))
    parser.add_argument("of", nargs="?", choices=(*PAPERS, "all"), help="with `page`: whose")
    parser.add_argument("--table", nargs="+", metavar="N", help="only these; default all")
    parser.add_argument(
        "--run", nargs="+", metavar="WORDS", help="of these only runs in whose name one of them is"
    )
    parser.add_argument(
        "--scale", help="iterations, rows, workers; default the paper's second, of minutes"
    )
    parser.add_argument("--seeds", type=int, default=3, help="default 3")
    parser.add_argument(
        "--out", type=Path, help="default out/papers; of a page docs/results/papers"
    )
    given = parser.parse_args(arguments)
    if (given.paper == "page") != (given.of is not None):
        parser.error("write `PAPER` to run it, or `page PAPER` to make its page")
    if given.seeds < 1:
        parser.error("--seeds is at least 1")
    given.name = given.of or given.paper
    if given.name == "all":
        return given
    paper = load_paper(given.name)
    numbers = [table.number for table in paper.tables]
    unknown = [each for each in given.table or () if each not in numbers]
    if unknown:
        parser.error(f"{given.name} has no table {unknown[0]}; it has {', '.join(numbers)}")
    scales = [scale.name for scale in paper.scales]
    given.scale = given.scale or scales[1]
    if given.scale not in scales:
        parser.error(f"{given.name} has no scale {given.scale}; it has {', '.join(scales)}")
    return given


def run_paper(given: argparse.Namespace) -> int:
    """Makes the runs; returns the exit status."""
    import torch  # noqa: F401 (so that the first run's time is not that of the import)
    from deltawire import DeltawireError

    from lab.papers.fastsgd.trainings import TrainingFailed

    # What can keep a single run from being made on a machine.
    failures = (DataError, NamespaceError, RanksFailed, TrainingFailed, CommandFailed)
    paper, folder = load_paper(given.name), given.out or Path("out/papers")
    results = Results(paper, folder / f"{given.name}.json")
    runs = [
        run
        for run in paper.chosen(given.table)
        if given.run is None or any(words in run.cell for words in given.run)
    ]
    scale = next(each for each in paper.scales if each.name == given.scale)
    print(f"scale {scale.name}, {given.seeds} seed(s)", file=sys.stderr, flush=True)
    failed = make_missing(results, runs, scale, given.seeds, *failures, DeltawireError)
    print(Page(paper, results).write(folder))
    return 1 if failed else 0


def make_page(given: argparse.Namespace) -> int:
    """Makes a page from results, or all of them and their summary; returns the exit status."""
    folder, pages = given.out or PAGES, []
    for name in PAPERS if given.name == "all" else [given.name]:
        path = folder / f"{name}.json"
        if not path.exists():
            raise ResultsError(f"there is no {path}; run `python -m lab.papers {name}` first")
        paper = load_paper(name)
        pages.append(Page(paper, Results(paper, path)))
        for table in paper.tables:
            for number, cell, scale in (r for b in table.because for r in pages[-1].lacks(b)):
                raise ResultsError(  # no published reason names a run that was not made
                    f"{path}: a reason of table {table.number} names the run '{cell}' of table "
                    f"{number} at {scale}, which is not there; make it with `python -m lab.papers "
                    f"{name} --table {number} --scale {scale}`"
                )
    for page in pages:
        print(page.write(folder))
    if given.name == "all":
        write_whole(folder / "summary.md", summary(pages) + "\n")
        print(folder / "summary.md")
    return 0


def run(given: argparse.Namespace) -> int:
    """Exit status: 0 with all runs, 1 if some failed."""
    return make_page(given) if given.paper == "page" else run_paper(given)


main = main_of(
    "lab.papers",
    parse,
    run,
    ResultsError,
    interrupted="interrupted; finished runs are kept, and the same command goes on",
)

if __name__ == "__main__":
    sys.exit(main())
