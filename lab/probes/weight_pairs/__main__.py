"""Bits that patches take for each changed weight, on real versions of a model, next to other ways.

    DELTAWIRE_DATA=... python -m lab.probes.weight_pairs        # 9 minutes of processor time

A byte-level transformer is trained, and then fine-tuned at each rate; version 0 is compared with
the versions after 1, 4, 16 and 64 steps, in bf16 and in fp8 (e4m3). Each way is asked for the new
version and counted only if it comes back bit for bit. Programs that aren't installed are left out,
and named. All weights of a version are one array, so no way has to pay for names of tensors.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lab.command.program import main_of, make_parser
from lab.data.images import DataError
from lab.probes.weight_pairs.fine_tuning import FineTuning, Version
from lab.probes.weight_pairs.ways import WAYS, Way, WayFailed

_RATES = (3e-4, 1e-5, 1e-6, 1e-7)
_STEPS = (1, 4, 16, 64)


def row_of(kind: str, rate: float, step: int, sizes: Sequence[int], pair: tuple) -> str:
    """A row of the table; `sizes` are the bytes of each way, the patch's first."""
    old, new = pair
    changes = np.count_nonzero(old != new)
    ratio = f"{old.nbytes / sizes[0]:.1f}"
    bits = [f"{8 * size / changes:.1f}" if changes else "-" for size in sizes]
    share = f"{100 * changes / len(old):.2f}"
    return f"| {' | '.join([kind, f'{rate:g}', str(step), share, ratio, *bits])} |"


def header_of(ways: Sequence[Way]) -> str:
    """The table's first two lines."""
    names = ["weights", "rate", "steps", "changed %", "times smaller", *(way.name for way in ways)]
    return f"| {' | '.join(names)} |\n|---{'|---:' * (len(names) - 1)}|"


def installed_ways() -> list[Way]:
    """Those that this machine can use; a line on standard error names each other one."""
    for way in WAYS:
        if way.missing:
            print(f"{way.name}: left out, {way.missing} is missing", file=sys.stderr)
    return [way for way in WAYS if not way.missing]


def write_pairs(folder: Path, rate: float, first: Version, later: Sequence[Version]) -> None:
    """Raw bf16: RATE-0 and RATE-STEPS."""
    folder.mkdir(parents=True, exist_ok=True)
    for version in (first, *later):
        version.bf16.tofile(folder / f"{rate:g}-{version.step}")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.weight_pairs", __doc__)
    parser.add_argument("--rates", nargs="+", type=float, default=list(_RATES), metavar="RATE")
    parser.add_argument("--steps", nargs="+", type=int, default=list(_STEPS), metavar="STEPS")
    parser.add_argument("--width", type=int, default=192, help="a multiple of 4; default 192")
    parser.add_argument("--layers", type=int, default=4, help="default 4")
    parser.add_argument("--base-steps", type=int, default=300, help="before; default 300")
    parser.add_argument("--files", type=Path, help="a folder for the bf16 pairs: bench/patches")
    given = parser.parse_args(arguments)
    if given.steps != sorted(set(given.steps)) or given.steps[0] < 1:
        parser.error("--steps must ascend, from 1 or more")
    return given


def run(given: argparse.Namespace) -> None:
    """Trains, and prints the table row by row."""
    ways = installed_ways()
    begin = time.monotonic()
    tuning = FineTuning(given.width, given.layers, given.base_steps)
    print(
        f"{tuning.weights:,} weights; loss {tuning.base_loss:.2f} after {given.base_steps} steps, "
        f"{time.monotonic() - begin:.0f} s",
        file=sys.stderr,
    )
    print(header_of(ways))
    for rate in given.rates:
        first, *later = tuning.versions(rate, given.steps)
        if given.files is not None:
            write_pairs(given.files, rate, first, later)
        for version, kind in itertools.product(later, ("bf16", "fp8")):
            pair = getattr(first, kind), getattr(version, kind)
            sizes = [way.bytes(*pair) for way in ways]
            print(row_of(kind, rate, version.step, sizes, pair), flush=True)


main = main_of("lab.probes.weight_pairs", parse, run, DataError, WayFailed)


if __name__ == "__main__":
    sys.exit(main())
