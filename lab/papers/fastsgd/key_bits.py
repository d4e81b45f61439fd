"""Bits per key in real sparse gradients, compared with tables 5 and 6 of the FastSGD paper.

    python -m lab.papers.fastsgd.key_bits 20news.libsvm.xz [--batch 10%] [--ranks 1] [--epochs 5]

One process trains logistic regression with Adam, as the paper does (section 4.1). The gradient of
each step and rank has only the features of its own examples; it is encoded by `fastsgd:tau=128`
with each size of the length flag and with `keys=auto`, and by `sketchml`, and the bits of all keys
are divided by their number. The formula is ceil(log2(Dm / d)) + l, for each gradient (section 3.4).
Training uses the uncompressed gradients. Runs are deterministic: the same command gives the same
numbers.
"""

import argparse
import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import deltawire
import numpy as np

from lab.command.paths import DELTAWIRE
from lab.command.program import main_of, make_parser
from lab.data.images import DataError
from lab.data.sparse_rows import SparseRows, load_sparse_rows

FLAG_BITS = (1, 2, 3, 4, 5)
BETAS = (0.9, 0.999)
EPSILON = 1e-8


@dataclasses.dataclass
class KeyBits:
    """The bits that a codec spends on keys."""

    spec: str
    binary: str
    bits: int = 0
    keys: int = 0

    def add(self, gradient: np.ndarray) -> int:
        """Adds one gradient's bits; returns how many keys it has."""
        data = deltawire.encode(gradient, self.spec, min_elements=0)
        keys = int(np.count_nonzero(deltawire.decode(data)))
        command = [self.binary, "inspect", "--json", "-"]
        listed = subprocess.run(command, input=data, check=True, capture_output=True).stdout
        sections = {each["name"]: each["bits"] for each in json.loads(listed)["sections"]}
        self.bits += sections.get("keys", 0)
        self.keys += keys
        return keys

    def each(self) -> float:
        """Bits per key; NaN if there was none."""
        return self.bits / self.keys if self.keys else math.nan


def gradient_of(rows: SparseRows, chosen: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean gradient of the logistic loss over some rows, float32 of shape (features,)."""
    lengths = rows.begin[chosen + 1] - rows.begin[chosen]
    owner = np.repeat(np.arange(len(chosen)), lengths)
    inside = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    at = np.repeat(rows.begin[chosen], lengths) + inside
    columns, values = rows.columns[at], rows.values[at]
    margins = np.bincount(owner, values * weights[columns], len(chosen)) * rows.labels[chosen]
    slopes = -rows.labels[chosen] / (1 + np.exp(margins)) / max(len(chosen), 1)
    return np.bincount(columns, values * slopes[owner], rows.features).astype(np.float32)


class Adam:
    """Equations 5 and 6 of the paper, without bias correction as there."""

    def __init__(self, features: int, rate: float) -> None:
        self.weights = np.zeros(features)
        self._rate = rate
        self._mean = np.zeros(features)
        self._square = np.zeros(features)

    def step(self, gradient: np.ndarray) -> None:
        """One step."""
        wide = gradient.astype(np.float64)
        self._mean += (1 - BETAS[0]) * (wide - self._mean)
        self._square += (1 - BETAS[1]) * (wide**2 - self._square)
        self.weights -= self._rate * self._mean / np.sqrt(self._square + EPSILON)


def gradients(rows: SparseRows, given: argparse.Namespace) -> Iterator[np.ndarray]:
    """Trains, and yields every rank's gradient of every step."""
    optimizer = Adam(rows.features, given.lr)
    order = np.random.Philox(key=[given.seed, 0])
    batch = max(given.ranks, round(rows.count * given.batch))
    for _ in range(given.epochs):
        shuffled = np.argsort(order.random_raw(rows.count), kind="stable")
        for begin in range(0, rows.count - batch + 1, batch):
            parts = np.array_split(shuffled[begin : begin + batch], given.ranks)
            shares = [gradient_of(rows, part, optimizer.weights) for part in parts]
            yield from shares
            optimizer.step(sum(shares) / np.float32(given.ranks))


@dataclasses.dataclass
class Measured:
    """The sums over all gradients of a run."""

    fastsgd: dict[int, KeyBits]
    auto: KeyBits
    sketchml: KeyBits
    formulas: dict[int, int]
    gradients: int = 0
    non_zeros: int = 0

    def add(self, gradient: np.ndarray) -> None:
        """Counts one gradient."""
        self.gradients += 1
        self.non_zeros += int(np.count_nonzero(gradient))
        self.auto.add(gradient)
        self.sketchml.add(gradient)
        for flag, each in self.fastsgd.items():
            keys = each.add(gradient)
            if keys:
                self.formulas[flag] += keys * (math.ceil(math.log2(gradient.size / keys)) + flag)


def measure(rows: SparseRows, given: argparse.Namespace) -> Measured:
    """Trains, and measures all gradients."""
    specs = {flag: f"fastsgd:tau=128,l={flag}" for flag in FLAG_BITS}
    measured = Measured(
        {flag: KeyBits(spec, given.binary) for flag, spec in specs.items()},
        KeyBits("fastsgd:tau=128,keys=auto", given.binary),
        KeyBits("sketchml", given.binary),
        dict.fromkeys(FLAG_BITS, 0),
    )
    for gradient in gradients(rows, given):
        measured.add(gradient)
    return measured


def report(measured: Measured, features: int) -> list[str]:
    """The lines to print."""
    keys = measured.fastsgd[1].keys
    density = measured.non_zeros / measured.gradients / features
    lines = [
        f"{measured.gradients} gradients of {features:,} elements, {100 * density:.2f} % non-zero, "
        f"{100 * keys / max(measured.non_zeros, 1):.1f} % of these sent by fastsgd:tau=128",
        "| bits a key | l = 1 | 2 | 3 | 4 | 5 |",
        "|---|---|---|---|---|---|",
    ]
    found = " | ".join(f"{each.each():.2f}" for each in measured.fastsgd.values())
    formula = " | ".join(f"{bits / max(keys, 1):.2f}" for bits in measured.formulas.values())
    lines += [f"| fastsgd | {found} |", f"| formula | {formula} |"]
    others = {"keys=auto": measured.auto, "sketchml": measured.sketchml}
    return lines + [f"{name}: {each.each():.2f} bits a key" for name, each in others.items()]


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.papers.fastsgd.key_bits", __doc__.split("\n\n")[0])
    parser.add_argument("file", type=Path, help="examples in LIBSVM's format, plain or .xz")
    parser.add_argument(
        "--features", type=int, default=0, help="at least; default: as many as used"
    )
    parser.add_argument("--batch", type=float, default=0.1, help="share of the examples, all ranks")
    parser.add_argument("--ranks", type=int, default=1, help="that share a batch")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--binary", default=str(DELTAWIRE))
    given = parser.parse_args(arguments)
    if not 0 < given.batch <= 1 or given.ranks < 1 or given.epochs < 1:
        parser.error("--batch is a share above 0, --ranks and --epochs are at least 1")
    return given


def run(given: argparse.Namespace) -> None:
    """Prints the figures."""
    rows = load_sparse_rows(given.file, given.features)
    print(*report(measure(rows, given), rows.features), sep="\n")


main = main_of("lab.papers.fastsgd.key_bits", parse, run, DataError)


if __name__ == "__main__":
    sys.exit(main())
