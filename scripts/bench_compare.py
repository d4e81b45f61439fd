#!/usr/bin/env python3
"""Compares two runs of `make bench` (or of build/release/bench/coding) row by row.

    scripts/bench_compare.py OLD.json NEW.json [--changed 5] [--match REGEX]

Machines are noisy and differ. So it compares each row's xC: its speed as a ratio to the speed of
copying the same array in the same run. Rows that changed by less than `--changed` percent are left
out. The exit status is 0 whatever it finds: speed is never a gate.
"""

import argparse
import json
import re
import sys
from pathlib import Path


def rows_of(path: Path) -> dict[str, dict]:
    """The rows of a file of results, by name without the count of iterations."""
    try:
        results = json.loads(path.read_text(encoding="utf-8"))["benchmarks"]
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"{path} is not a file of results ({error}): make one with --benchmark_out={path}")
    return {row["name"].split("/iterations:")[0]: row for row in results if "xC" in row}


def comparison(old: dict[str, dict], new: dict[str, dict], changed: float) -> list[str]:
    """Lines of a Markdown table, the largest losses first."""
    found = []
    for name in old.keys() & new.keys():
        ratio = new[name]["xC"] / old[name]["xC"]
        if abs(ratio - 1) * 100 >= changed:
            found.append((ratio, name))
    lines = ["| row | old xC | new xC | new / old |", "|---|---|---|---|"]
    for ratio, name in sorted(found):
        lines.append(f"| {name} | {old[name]['xC']:.3f} | {new[name]['xC']:.3f} | {ratio:.2f} |")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Compares as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument(
        "--changed", type=float, default=5, help="percent that a row must change by"
    )
    parser.add_argument("--match", default="", help="a regular expression in the names of rows")
    options = parser.parse_args(arguments)
    files = [rows_of(options.old), rows_of(options.new)]
    old, new = (
        {name: each[name] for name in each if re.search(options.match, name)} for each in files
    )
    print("\n".join(comparison(old, new, options.changed)))
    for what, names in (("gone", old.keys() - new.keys()), ("new", new.keys() - old.keys())):
        if names:
            print(f"\n{what}: {', '.join(sorted(names))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
