"""Ranks methods of compression on the corpus: deltawire's codecs, and other software.

    DELTAWIRE_DATA=... python -m lab.traces.corpus --out out/corpus
    pip install zstandard zipnn safetensors                 # without them these rows are left out
    python -m lab.traces.rank --corpus out/corpus           # out/corpus.json and out/corpus.md
    python -m lab.traces.rank --page                        # docs/results/corpus.md from its JSON

Every finished row is written at once: after Ctrl-C the same command goes on with the others. Rows
of --rival MODULE come from a list ENTRIES in that module (docs/reference/corpus.md).
"""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from deltawire import DeltawireError

from lab.command.files import json_in_rows, write_whole
from lab.command.paths import REPOSITORY
from lab.command.program import main_of, make_parser
from lab.papers.results import machine
from lab.traces.measure import Corpus, CorpusError, Stream, lowest_bits, measure, speed, speed_step
from lab.traces.methods import OURS, SPECS, Entry, entry_of
from lab.traces.rank_page import text_of
from lab.traces.rivals import rivals

NAME = "corpus"
PAGES = REPOSITORY / "docs" / "results"
_DIGITS = 5


class Ranking:
    """The measured rows, in a JSON file that is whole at any moment."""

    def __init__(self, path: Path, corpus: Corpus) -> None:
        """Raises CorpusError for the results of another corpus."""
        self._path, self._corpus = path, corpus
        self.content = {
            "digest": corpus.digest,
            "made_by": corpus.made_by,
            "machine": machine(),
            "lowest_bits": _rounded(
                {group: lowest_bits(corpus, group) for group in ("gradients", "changes")}
            ),
            "missing": [],
            "streams": [
                {"folder": each.folder, "group": each.group, "network": each.network}
                for each in corpus.streams
            ],
            "rows": [],
        }
        if path.exists():
            known = json.loads(path.read_text())
            if known.get("digest") != corpus.digest:
                raise CorpusError(f"{path}: results of another corpus; take another --out")
            self.content["rows"] = known["rows"]

    def work(self, entries: Iterable[Entry | str]) -> None:
        """Measures what is missing. Raises CorpusError."""
        step = speed_step(self._corpus)
        for entry in entries:
            if isinstance(entry, str):
                self.content["missing"].append(entry)
                continue
            row = self._row(entry)
            self._measure_missing(entry, row["figures"])
            if "speed" not in row:
                load = {"load": round(os.getloadavg()[0], 1)}
                row["speed"] = _rounded(speed(entry, step)) | load
            if row not in self.content["rows"]:
                self.content["rows"].append(row)
            self.save()

    def save(self) -> None:
        """Writes the JSON, a line for each row."""
        write_whole(self._path, json_in_rows(self.content, "rows"))

    def _row(self, entry: Entry) -> dict:
        """The known row, or one without figures."""
        for row in self.content["rows"]:
            if (row["name"], row["whose"]) == (entry.name, entry.whose):
                return row
        about = {"name": entry.name, "whose": entry.whose, "lossless": entry.lossless}
        return about | {"figures": {}}

    def _measure_missing(self, entry: Entry, figures: dict[str, dict]) -> None:
        streams = [each for each in self._corpus.streams if _is_meant(entry, each)]
        missing = [each for each in streams if each.folder not in figures]
        if missing:
            print(entry.name, file=sys.stderr, flush=True)
        for stream in missing:
            figures[stream.folder] = _rounded(measure(entry, self._corpus, stream))


def _is_meant(entry: Entry, stream: Stream) -> bool:
    """Lossless methods get everything once. Others get bfloat16 where they know it: deltawire's."""
    if entry.lossless:
        return stream.kind != "row"
    if entry.significance:
        return stream.group == "gradients"
    return stream.dtype == "float32" or entry.whose == OURS


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.{_DIGITS}g}") for name, value in figures.items()}


def entries_of(modules: list[str]) -> Iterable[Entry | str]:
    """deltawire's, other software's, and those of modules. Raises CorpusError."""
    yield from map(entry_of, SPECS)
    yield from rivals()
    for module in modules:
        try:
            yield from importlib.import_module(module).ENTRIES
        except (ImportError, AttributeError) as cause:
            raise CorpusError(f"--rival {module}: {cause}") from cause


def make_page(path: Path) -> Path:
    """Writes the page that belongs to a JSON file, next to it."""
    page = path.with_suffix(".md")
    page.write_text(text_of(json.loads(path.read_text())))
    return page


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.traces.rank", __doc__)
    parser.add_argument("--corpus", type=Path, default=Path("out/corpus"))
    parser.add_argument("--out", type=Path, help="folder; default out, of a page docs/results")
    parser.add_argument("--rival", nargs="+", default=[], metavar="MODULE", help="more rows")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these rows")
    parser.add_argument("--page", action="store_true", help="only make the page")
    return parser.parse_args(arguments)


def run(given: argparse.Namespace) -> None:
    """Measures and makes the page."""
    if given.page:
        print(make_page((given.out or PAGES) / f"{NAME}.json"))
        return
    torch.set_num_threads(1)
    path = (given.out or Path("out")) / f"{NAME}.json"
    ranking = Ranking(path, Corpus(given.corpus))
    chosen = (
        each
        for each in entries_of(given.rival)
        if given.only is None or (isinstance(each, Entry) and each.name in given.only)
    )
    ranking.work(chosen)
    ranking.save()
    print(make_page(path))


main = main_of("lab.traces.rank", parse, run, CorpusError, DeltawireError, FileNotFoundError)


if __name__ == "__main__":
    sys.exit(main())
