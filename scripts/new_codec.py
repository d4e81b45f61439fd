#!/usr/bin/env python3
"""Makes the folder of a new codec that works at once: it sends the upper half of each value, until
you edit it.

It writes src/codecs/NAME/ from scripts/codec_template/, with the next free id, a row in
src/codecs/registry.cc and a line in CHANGELOG.md. docs/design/adding-a-codec.md says what each file
is for and what remains to be done.

usage: scripts/new_codec.py NAME [--root TREE]     exit status 2 for a name that can't be used
"""

import argparse
import re
import sys
from pathlib import Path

TEMPLATE = Path(__file__).resolve().parent / "codec_template"
ID = "4242"  # the template's id, which the new codec's replaces
SPEC_ID = re.compile(r"^Codec id ([0-9]+)\.", re.MULTILINE)
INCLUDES = re.compile(r'(?:^#include ".*\n)+', re.MULTILINE)
CHANGES = "### Added\n"
LAST_ROW = re.compile(r"^  ROW\(\w+\)(?=\n\n)", re.MULTILINE)
# Plausible names for a codec that already mean something in C++.
TAKEN = {"auto", "bool", "char", "double", "float", "int", "long", "short", "testing", "union"}


class Refused(Exception):
    """No codec was made; the message says why, and what to do."""


def known_ids(root: Path) -> list[int]:
    """The ids of all codecs, from their spec.md."""
    specs = (root / "src" / "codecs").rglob("spec.md")
    found = [SPEC_ID.search(spec.read_text(encoding="utf-8")) for spec in specs]
    return [int(match[1]) for match in found if match]


def filled(text: str, name: str, codec_id: int) -> str:
    """A template's text for this codec; sorts the includes, whose order depends on the name."""
    text = text.replace("NAME", name).replace("Name", name.capitalize()).replace(ID, str(codec_id))
    return INCLUDES.sub(lambda block: "".join(sorted(block[0].splitlines(True))), text)


def make(root: Path, name: str) -> list[Path]:
    """Writes the codec; returns the files made or changed. Raises Refused before it writes any."""
    folder, changelog = root / "src" / "codecs" / name, root / "CHANGELOG.md"
    registry = folder.parent / "registry.cc"
    ids = known_ids(root)
    if not ids:
        raise Refused(f"no codecs in {folder.parent}: --root names the tree")
    if not re.fullmatch(r"[a-z][a-z0-9]*", name) or name in TAKEN:
        raise Refused(f"{name!r}: a name has small letters and digits, and is not a keyword of C++")
    if folder.exists():
        raise Refused(f"{name!r} is there already: {folder}")
    changes, rows = (path.read_text(encoding="utf-8") for path in (changelog, registry))
    if CHANGES not in changes:
        raise Refused(f"{changelog} has no {CHANGES.strip()!r} to put a line under")
    folder.mkdir()
    made = []
    for template in sorted(TEMPLATE.glob("*.in")):
        target = folder / filled(template.stem, name, 0)
        text = filled(template.read_text(encoding="utf-8"), name, max(ids) + 1)
        target.write_text(text, encoding="utf-8")
        made.append(target)
    row = f"  ROW({name})"
    rows = LAST_ROW.sub(lambda last: f"{last[0]:<30}\\\n{row}", rows)
    registry.write_text(rows, encoding="utf-8")
    line = f"- Codec `{name}`: say here what users get.\n"
    changelog.write_text(changes.replace(CHANGES, CHANGES + line, 1), encoding="utf-8")
    return [*made, registry, changelog]


def main(arguments: list[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", metavar="NAME", help="in specs, and of the folder: small letters")
    parser.add_argument("--root", type=Path, default=TEMPLATE.parents[1], help="the tree")
    chosen = parser.parse_args(arguments)
    try:
        made = make(chosen.root, chosen.name)
    except Refused as refused:
        print(f"scripts/new_codec.py: {refused}", file=sys.stderr)
        return 2
    print(*made, sep="\n")
    print("next: build and test it as docs/design/adding-a-codec.md says, section 4")
    return 0


if __name__ == "__main__":
    sys.exit(main())
