#!/usr/bin/env python3
"""Writes the tables of codecs in docs/ and spec.md.

Between <!-- codecs --> and <!-- /codecs --> stands what the registry says (`deltawire codecs
--json`) and each codec's spec.md: the table "in short" after its first paragraph, and the sections
that it has.

Between <!-- compared --> and <!-- /compared -->, with --compared: bits and errors that `deltawire
compare` finds, the same on every machine, for the specs that the rows name. Columns of speeds stay
as they are, and so do those of traces that aren't there (tests/traces/README.md says how to make
them). All pages take half a minute.

usage: scripts/codec_tables.py [--check] [--compared [PAGE ...]] [--binary BINARY] [--root TREE]
       --check writes nothing; exit status 1 when a table is stale
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = {
    name: re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)
    for name in ("codecs", "compared")
}
SHORT = re.compile(r"^\| in short \| \|\n\|---\|---\|\n((?:\|.*\|\n)+)", re.MULTILINE)
OWED = ("does", "loses", "choose it for", "do not choose it for")


class DocumentError(Exception):
    """A page or a spec.md lacks something; the message says where and what."""


@dataclass(frozen=True)
class Codec:
    """A codec: the registry's facts about it, and its spec.md."""

    facts: dict
    folder: str
    text: str
    short: dict[str, str]

    @property
    def name(self) -> str:
        """Its name in specs, formatted as code."""
        return f"`{self.facts['name']}`"

    def section(self, heading: str, words: str) -> str:
        """A link from a page to a section of spec.md; "" if there is no such section."""
        if not re.search(rf"^## {re.escape(heading)}$", self.text, re.MULTILINE):
            return ""
        return self.page(words, "#" + re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-"))

    def page(self, words: str, anchor: str = "") -> str:
        """A link from a page, all of which are in folders of docs/, to spec.md."""
        return f"[{words}](../../src/codecs/{self.folder}/spec.md{anchor})"


Row = Callable[[Codec], tuple[str, ...]]
# For each page: the head of its table, and a codec's row, left out if its last cell is empty.
TABLES: dict[str, tuple[tuple[str, ...], Row]] = {
    "docs/reference/algorithms.md": (
        (
            *("codec", "what it does", "loses", "choose it for", "do not choose it for"),
            "default pattern",
        ),
        lambda c: (
            c.page(c.name),
            c.short["does"],
            c.short["loses"],
            c.short["choose it for"],
            c.short["do not choose it for"],
            f"`{c.facts['default_pattern']}`",
        ),
    ),
    "docs/reference/format.md": (
        ("id", "codec", "scalars", "error feedback", "NaN and Inf", "`chunk_elements`"),
        lambda c: (
            # Format 1 does not freeze the ids of baselines.
            f"{c.facts['id']}{' (experimental)' * c.folder.startswith('baselines/')}",
            c.page(c.name),
            c.short.get("scalars", ""),
            # Or the parameters that turn it on.
            c.short.get("error feedback", "yes" if c.facts["error_feedback"] else "no"),
            "refused" if c.facts["finite_only"] else "carried",
            f"{c.facts['chunk_elements']:,}",
        ),
    ),
    "docs/reference/errata.md": (
        ("codec", "after", "departures"),
        lambda c: (
            c.name,
            c.facts["source"],
            c.section("Departures from the paper", "what and why"),
        ),
    ),
    "docs/design/determinism.md": (
        ("codec", "what fixes its bytes"),
        lambda c: (c.name, c.section("The same bytes everywhere", "its rules")),
    ),
}


Figures = dict[str, float]  # of a spec and an input, by the names that `deltawire compare` has


@dataclass(frozen=True)
class Compared:
    """A table of figures that `deltawire compare` finds."""

    inputs: tuple[str, ...]
    # By input, None where that isn't there, and the cells as they are.
    row: Callable[[list["Figures | None"], list[str]], list[str]]
    every: bool = False  # whether each codec has a row
    also: str | None = None  # what makes of a row's spec another one whose figures it shows, too


def bits(value: float) -> str:
    """Bits a value: two places, and three digits below 1."""
    return f"{value:.2f}" if value >= 0.9995 else f"{value:.3g}"


def error(value: float) -> str:
    """A relative error: two digits, and three from 1 on."""
    return f"{value:.{2 if value < 1 else 3}g}"


def triple(figures: Figures) -> str:
    """Bits, the error of one message, and that of the sum of 20."""
    names = ("relative_l2", "feedback_relative_l2")
    return "; ".join([bits(figures["bits_per_value"]), *(error(figures[n]) for n in names)])


def in_columns(found: list[Figures | None], old: list[str]) -> list[str]:
    """The cells of each input, and of what stands behind them."""
    known = zip(found, old, strict=False)
    return [*(cell if each is None else triple(each) for each, cell in known), *old[len(found) :]]


def pair(figures: Figures) -> str:
    """The error of one message, and that of the sum of 20."""
    return f"{figures['relative_l2']:.3f}; {figures['feedback_relative_l2']:.4f}"


FIGURES = ("bits_per_value", "relative_l2", "feedback_relative_l2")
TRACES = ("lenet5-sgd", "resnet20-adam", "transformer-sgd")
DRAWN = ("synthetic:normal", "synthetic:heavy-tail")
COMPARED: dict[str, Compared] = {
    "docs/reference/compare.md": Compared(
        inputs=(*(f"tests/traces/{name}" for name in TRACES), *DRAWN), row=in_columns, every=True
    ),
    "src/codecs/fp4/spec.md": Compared(
        inputs=DRAWN, row=lambda found, _: [bits(found[0]["bits_per_value"]), *map(pair, found)]
    ),
    "src/codecs/qsgd/spec.md": Compared(
        inputs=("synthetic:normal",),
        row=lambda found, _: [
            bits(found[0]["bits_per_value"]),
            bits(found[1]["bits_per_value"]),
            f"{found[0]['relative_l2'] ** 2:.2g}",
        ],
        also=",coding=omega",
    ),
}


def read_codecs(root: Path, binary: str) -> list[Codec]:
    """All registered codecs, in the order of their ids."""
    listed = subprocess.run([binary, "codecs", "--json"], check=True, capture_output=True).stdout
    specs = {}
    for path in (root / "src" / "codecs").rglob("spec.md"):
        text = path.read_text(encoding="utf-8")
        found = re.search(r"^Codec id ([0-9]+)\.", text, re.MULTILINE)
        if found is None:
            raise DocumentError(f"{path}: no line begins with 'Codec id <number>.'")
        specs[int(found[1])] = (path, text)
    codecs = []
    for facts in json.loads(listed)["codecs"]:
        if facts["id"] not in specs:
            raise DocumentError(f"no spec.md has the id of {facts['name']}, {facts['id']}")
        path, text = specs[facts["id"]]
        owed = [*OWED, "scalars"] if facts["scalars"] else OWED
        folder = path.parent.relative_to(root / "src" / "codecs").as_posix()
        codecs.append(Codec(facts, folder, text, read_short(path, text, owed)))
    return codecs


def read_short(path: Path, text: str, owed: Sequence[str]) -> dict[str, str]:
    """The table "in short" of a spec.md."""
    found = SHORT.search(text)
    rows = found[1].splitlines() if found else []
    short = dict(re.split(r" \| ", row.strip("| "), maxsplit=1) for row in rows)
    missing = [name for name in owed if name not in short]
    if missing:
        raise DocumentError(f"{path}: its table 'in short' lacks {', '.join(missing)}")
    return short


def table(codecs: list[Codec], head: tuple[str, ...], row: Row) -> str:
    """A table in Markdown."""
    rows = [f"| {' | '.join(cells)} |" for cells in map(row, codecs) if cells[-1]]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows, ""])


def compared(root: Path, binary: str, page: str, every: Sequence[str], keep: Sequence[str]) -> str:
    """The table of COMPARED of a page. Rows of the codecs in `keep` stay as they are; `every` names
    all codecs."""
    of, text = COMPARED[page], (root / page).read_text(encoding="utf-8")
    head, line, *old = place_in(page, text, "compared").splitlines()
    cells = {row[0]: row[1:] for row in map(cells_of, old)}
    specs = {label: label.split("`")[1] for label in cells}
    missing = set(every if of.every else ()) - {spec.partition(":")[0] for spec in specs.values()}
    if missing:
        raise DocumentError(f"{page}: its table has no row of {', '.join(sorted(missing))}")
    found = measured(root, binary, of, specs.values())
    rows = [head, line]
    for label, spec in specs.items():
        row = cells[label]
        if spec.partition(":")[0] not in keep:
            row = of.row([*found[spec], *(found[spec + of.also] if of.also else ())], row)
        rows.append(f"| {' | '.join([label, *row])} |")
    return "\n".join([*rows, ""])


def cells_of(row: str) -> list[str]:
    """The cells of a table's row."""
    return [cell.strip() for cell in row.strip().strip("|").split(" | ")]


def measured(
    root: Path, binary: str, of: Compared, specs: Iterable[str]
) -> dict[str, list[Figures | None]]:
    """What `deltawire compare` finds: for each spec a list, by input."""
    every = [*specs, *(each + of.also for each in specs if of.also)]
    command = [binary, "compare", "--json", "-", "--quick", "--seconds", "0.001"]

    def one(given: str) -> dict[str, Figures] | None:
        if not given.startswith("synthetic:") and not (root / given).exists():
            return None
        said = [*command, "--input", given, "--codecs", *every]
        done = subprocess.run(said, cwd=root, check=True, capture_output=True, text=True)
        rows = json.loads(done.stdout)["rows"]
        return {
            row["method"]: {
                name: float("nan" if row[name] is None else row[name]) for name in FIGURES
            }
            for row in rows
        }

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(one, of.inputs))
    return {spec: [each and each[spec] for each in found] for spec in every}


def place_in(page: str, text: str, what: str) -> str:
    """What stands between the markers."""
    found = PLACES[what].findall(text)
    if len(found) != 1:
        raise DocumentError(f"{page}: not one place between <!-- {what} --> and <!-- /{what} -->")
    return found[0]


def pages(root: Path, tables: Iterable[tuple[str, str, str]]) -> dict[Path, tuple[str, str]]:
    """For each page, its text as it is and as it should be, given (page, marker, table)."""
    found = {}
    for name, what, new in tables:
        old, text = found.get(root / name) or [(root / name).read_text(encoding="utf-8")] * 2
        place_in(name, text, what)
        found[root / name] = (old, PLACES[what].sub(lambda _, new=new: new, text))
    return found


def main(arguments: list[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, say what is stale")
    parser.add_argument(
        "--compared",
        nargs="*",
        choices=COMPARED,
        metavar="PAGE",
        help="also what compare finds, of these pages or (30 s) all",
    )
    parser.add_argument("--binary", default=str(ROOT / "build" / "release" / "deltawire"))
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree whose pages are written")
    chosen = parser.parse_args(arguments)
    try:
        codecs = read_codecs(chosen.root, chosen.binary)
        tables = [
            (name, "codecs", table(codecs, head, row)) for name, (head, row) in TABLES.items()
        ]
        every = [each.facts["name"] for each in codecs]
        # Bytes that follow a library's version, which may be another one here.
        following = [each.facts["name"] for each in codecs if each.facts["bytes_follow_library"]]
        keep = following if chosen.check else ()
        for name in () if chosen.compared is None else chosen.compared or COMPARED:
            text = compared(chosen.root, chosen.binary, name, every, keep)
            tables.append((name, "compared", text))
        found = pages(chosen.root, tables)
    except DocumentError as error:
        print(f"scripts/codec_tables.py: {error}", file=sys.stderr)
        return 2
    stale = [path for path, (old, new) in found.items() if old != new]
    for path in stale:
        if chosen.check:
            option = " --compared" * (chosen.compared is not None)
            print(f"{path.relative_to(chosen.root)}: stale, run scripts/codec_tables.py{option}")
        else:
            path.write_text(found[path][1], encoding="utf-8")
            print(f"{path.relative_to(chosen.root)}: written")
    return 1 if stale and chosen.check else 0


if __name__ == "__main__":
    sys.exit(main())
