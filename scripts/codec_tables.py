#!/usr/bin/env python3
"""Writes the tables of codecs in docs/, between <!-- codecs --> and <!-- /codecs -->.

Their contents come from the registry (`deltawire codecs --json`) and from each codec's spec.md: the
table "in short" after its first paragraph, and the sections that it has. The table of
docs/reference/compare.md is the output of `deltawire codecs --markdown`.

usage: scripts/codec_tables.py [--check] [--binary BINARY] [--root TREE]
       --check writes nothing; exit status 1 when a table is stale
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = re.compile(r"(?<=<!-- codecs -->\n).*?(?=<!-- /codecs -->)", re.DOTALL)
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

    def link(self, page: str, heading: str, words: str) -> str:
        """A link from a page to a section of spec.md; "" if there is no such section."""
        if not re.search(rf"^## {re.escape(heading)}$", self.text, re.MULTILINE):
            return ""
        up = "../" * page.count("/")
        anchor = re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        return f"[{words}]({up}src/codecs/{self.folder}/spec.md#{anchor})"

    def page(self, page: str, words: str) -> str:
        """A link from a page to spec.md."""
        return f"[{words}]({'../' * page.count('/')}src/codecs/{self.folder}/spec.md)"

    def codec_id(self) -> str:
        """Its id; format 1 does not freeze the ids of baselines."""
        return f"{self.facts['id']}{' (experimental)' * self.folder.startswith('baselines/')}"

    def feedback(self) -> str:
        """Whether it has error feedback, or which parameters turn it on."""
        return self.short.get("error feedback", "yes" if self.facts["error_feedback"] else "no")

    def nan(self) -> str:
        """What it does with NaN and Inf."""
        return "refused" if self.facts["finite_only"] else "carried"


Row = Callable[[Codec], tuple[str, ...]]
# For each page: the head of its table, and a codec's row, left out if its last cell is empty.
TABLES: dict[str, tuple[tuple[str, ...], Row]] = {
    "docs/reference/algorithms.md": (
        (
            *("codec", "what it does", "loses", "choose it for", "do not choose it for"),
            "default pattern",
        ),
        lambda c: (
            c.page("docs/reference/", c.name),
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
            c.codec_id(),
            c.page("docs/reference/", c.name),
            c.short.get("scalars", ""),
            c.feedback(),
            c.nan(),
            f"{c.facts['chunk_elements']:,}",
        ),
    ),
    "docs/reference/errata.md": (
        ("codec", "after", "departures"),
        lambda c: (
            c.name,
            c.facts["source"],
            c.link("docs/reference/", "Departures from the paper", "what and why"),
        ),
    ),
    "docs/design/determinism.md": (
        ("codec", "what fixes its bytes"),
        lambda c: (c.name, c.link("docs/design/", "The same bytes everywhere", "its rules")),
    ),
}

PRINTED = "docs/reference/compare.md"  # its table is printed by the program `deltawire`


def printed_table(binary: str) -> str:
    """The table of all codecs that the program `deltawire` prints."""
    command = [binary, "codecs", "--markdown"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


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


def pages(root: Path, tables: dict[str, str]) -> dict[Path, tuple[str, str]]:
    """For each page, its text as it is and as it should be."""
    found = {}
    for name, new in tables.items():
        text = (root / name).read_text(encoding="utf-8")
        if len(PLACE.findall(text)) != 1:
            raise DocumentError(
                f"{name}: not one place between <!-- codecs --> and <!-- /codecs -->"
            )
        found[root / name] = (text, PLACE.sub(lambda _, new=new: new, text))
    return found


def main(arguments: list[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, say what is stale")
    parser.add_argument("--binary", default=str(ROOT / "build" / "release" / "deltawire"))
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree whose pages are written")
    chosen = parser.parse_args(arguments)
    try:
        codecs = read_codecs(chosen.root, chosen.binary)
        tables = {name: table(codecs, head, row) for name, (head, row) in TABLES.items()}
        tables[PRINTED] = printed_table(chosen.binary)
        found = pages(chosen.root, tables)
    except DocumentError as error:
        print(f"scripts/codec_tables.py: {error}", file=sys.stderr)
        return 2
    stale = [path for path, (old, new) in found.items() if old != new]
    for path in stale:
        if chosen.check:
            print(f"{path.relative_to(chosen.root)}: stale, run scripts/codec_tables.py")
        else:
            path.write_text(found[path][1], encoding="utf-8")
            print(f"{path.relative_to(chosen.root)}: written")
    return 1 if stale and chosen.check else 0


if __name__ == "__main__":
    sys.exit(main())
