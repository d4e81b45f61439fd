#!/usr/bin/env python3
"""Counts lines and files, beside the limits that scripts/check_layers.py holds them to.

Counted are C++, C, Python, shell, CMake and make files, templates of them (`.in`) too, that git
tracks; in a tree without git, all that is there. Code that only tests is no product: tests/,
`*_test.*`, `*_testing.*`, `fuzz_*` and `*_decoder.py`.

usage: scripts/budgets.py [ROOT]     exit status 1 if a limit is passed
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CODE = re.compile(r"\.(h|hpp|c|cc|cu|py|sh|cmake|in)$|(^|/)(CMakeLists\.txt|Makefile)$")
TESTS = re.compile(r"^tests/|_(test|testing)\.\w+$|(^|/)fuzz_|_decoder\.py$")
RECORDED = ("tests/golden/", "tests/traces/")  # files that programs wrote
LIBRARY = re.compile(r"^(src|include|python)/.*\.(h|hpp|c|cc|cu|py)$")
SKIPPED_FOLDERS = {"__pycache__", ".venv", "build", "out", ".git"}

# What a change adds is paid by what it takes away: limits fall, they rise by decision alone.
LIMITS = {
    "product code, lines": 140_555,
    "library (src, include, python), lines": 108_957,
    "library, files": 669,
    "of it python, lines": 31_569,
    "lab, lines": 11_156,
    "tests without golden files and traces, lines": 102_369,
    "files tracked": 3_270,
}


@dataclass(frozen=True)
class Budget:
    """One row: what is counted, how much there is, and how much there may be."""

    name: str
    count: int | None  # None: it can't be counted here
    limit: int

    @property
    def passed(self) -> bool:
        """Whether there is more than there may be."""
        return self.count is not None and self.count > self.limit


def budgets(root: Path) -> list[Budget]:
    """Counts a tree."""
    tracked = _tracked(root)
    lines = {
        name: (root / name).read_bytes().count(b"\n")
        for name in (_all_files(root) if tracked is None else tracked)
        if CODE.search(name) and (root / name).is_file()
    }
    product = {name: count for name, count in lines.items() if not TESTS.search(name)}
    library = {name: count for name, count in product.items() if LIBRARY.match(name)}
    tests = lines.keys() - product.keys()
    counts = (
        sum(product.values()),
        sum(library.values()),
        len(library),
        _sum_in("python/", library),
        _sum_in("lab/", product),
        sum(lines[name] for name in tests if not name.startswith(RECORDED)),
        None if tracked is None else len(tracked),
    )
    return [Budget(*row) for row in zip(LIMITS, counts, LIMITS.values(), strict=True)]


def _sum_in(folder: str, lines: dict[str, int]) -> int:
    return sum(count for name, count in lines.items() if name.startswith(folder))


def _tracked(root: Path) -> list[str] | None:
    """The files that git tracks; None where it does not say, as in an exported tree."""
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", root, "ls-files", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return listed.stdout.split("\0")[:-1]


def _all_files(root: Path) -> Iterator[str]:
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        if not SKIPPED_FOLDERS & set(inside.parts) and path.is_file():
            yield inside.as_posix()


def main(arguments: list[str]) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    rows = budgets(parser.parse_args(arguments).root.resolve())
    print(f"{'now':>9}{'limit':>9}")
    for row in rows:
        count = "no git" if row.count is None else f"{row.count:,}"
        print(f"{count:>9}{row.limit:>9,}  {row.name}{'  PASSED' if row.passed else ''}")
    return int(any(row.passed for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
