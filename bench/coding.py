#!/usr/bin/env python3
"""Measures how fast codecs code, and writes results and a table.

    bench/coding.py [--out out/bench] [--filter REGEX] [--quick] [--huge-pages] [--trace DIR]

Runs build/release/bench/coding (`make bench` builds it), which verifies each row before it is
measured, and leaves in the folder coding.json (for scripts/bench_compare.py) and coding.md. The
whole takes about ten minutes; --quick leaves out the 25 million values. --trace measures with
recorded gradients (docs/reference/traces.md) in place of made-up ones.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import deltawire
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "release" / "bench" / "coding"
WAYS = {
    "encode": "encode",
    "inplace": "encode, residual in place",
    "decode": "decode",
    "accumulate": "decode and add",
    "encode_pairs": "encode pairs",
    "decode_pairs": "decode pairs",
    "select": "select",
    "channel": "message of 1 M values",
    "channel_decode": "message of 1 M values, decode",
}


def named(results: dict) -> list[tuple[list[str], dict]]:
    """Rows with the parts of their names; a row that failed ends the program."""
    rows = []
    for row in results["benchmarks"]:
        name = row["name"].split("/iterations:")[0]
        if row.get("error_occurred"):
            sys.exit(f"{name}: {row['error_message']}")
        rows.append((name.split("/"), row))
    return rows


def table(results: dict) -> str:
    """A page in Markdown: the machine, then the rows."""
    context = results["context"]
    sizes = [key for key in context if key.startswith("copy of ")]
    copies = ", ".join(f"{key.removeprefix('copy of ')} {context[key]}" for key in sizes)
    lines = ["# How fast codecs code", ""]
    lines += [f"CPU: {context['cpu']}. One thread, checksums included, {context['pages']} pages."]
    lines += [f"Copy of as many float32 (xC = 1): {copies}.", ""]
    lines += ["| way | what | input | values | target | GB/s | xC | ns a value | bits a value |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for parts, row in named(results):
        way, what, data, size, *target = parts
        bits = f"{row['bits']:.3f}" if "bits" in row else ""
        numbers = f"{row['GB/s']:.2f} | {row['xC']:.3f} | {row['ns']:.3f} | {bits}"
        cells = [WAYS.get(way, way), what, data, size, " ".join(target), numbers]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def values_of(folder: Path) -> np.ndarray:
    """Of each step of a trace the tensor with the most values, one after another; the program
    repeats them until there are enough."""
    largest = []
    for step in deltawire.read_trace(folder):
        found = [each.values.reshape(-1) for each in step.gradients if each is not None]
        if found:
            largest.append(max(found, key=len))
    if not sum(map(len, largest)):
        sys.exit(f"{folder}: no gradient in it")
    return np.concatenate(largest)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--out", type=Path, default=ROOT / "out" / "bench", help="folder of results"
    )
    parser.add_argument(
        "--filter", default="", help="rows to measure: <way>/<spec>/<input>/<values>/<target>"
    )
    parser.add_argument("--quick", action="store_true", help="without the 25 million values")
    parser.add_argument(
        "--huge-pages",
        action="store_true",
        help="arrays in huge pages (glibc 2.35 or later), which take less looking up",
    )
    parser.add_argument(
        "--trace",
        type=Path,
        help="a trace: its steps' largest tensors are coded, significance apart",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    if not PROGRAM.is_file():
        sys.exit(f"{PROGRAM} isn't built: `make bench` builds it")
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    results = options.out / "coding.json"
    rows = options.filter or ("/(4K|64K|1M)/" if options.quick else ".")
    command = [PROGRAM, f"--benchmark_filter={rows}", f"--benchmark_out={results}"]
    pages = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"} if options.huge_pages else {}
    command.append("--benchmark_counters_tabular=true")
    if options.trace is not None:
        # A bare name: rows are named by parts between slashes.
        recorded = f"{options.trace.resolve().name}.f32"
        values_of(options.trace).astype("<f4").tofile(options.out / recorded)
        command.append(f"--input={recorded}")
    subprocess.run(command, check=True, env=os.environ | pages, cwd=options.out)
    text = results.read_text(encoding="utf-8")
    if not text:
        sys.exit(f"no row's name has '{rows}' in it")
    found = json.loads(text)
    (options.out / "coding.md").write_text(table(found), encoding="utf-8")
    print(f"\nwritten to {options.out}: coding.json, coding.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
