"""Bits per key in sparse gradients of data shaped like KDD12.

One process trains logistic regression with Adam, as the paper does (section 4.1). The gradient of
each step and rank has only the features of its own examples; it is encoded by `fastsgd:tau=128`
with each size of the length flag and with `keys=auto`, and by `sketchml`, and the bits of all keys
are divided by their number. Training uses the uncompressed gradients.
"""

import json
import math
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import deltawire
import numpy as np

from lab.command.paths import DELTAWIRE, said_by
from lab.data.sparse_rows import SparseRows, load_sparse_rows
from lab.papers.declaration import Metrics, Settings
from lab.papers.fastsgd.trainings import data_file

_BETAS, _EPSILON, _RATE = (0.9, 0.999), 1e-8, 0.01
_STEPS = 2  # of all rows at once
_SPECS = {f"l{flag}": f"fastsgd:tau=128,l={flag}" for flag in (1, 2, 3, 4, 5)}
_SPECS |= {"auto": "fastsgd:tau=128,keys=auto", "sketchml": "sketchml"}


def keys_of(gradient: np.ndarray, spec: str) -> tuple[int, int]:
    """How many keys a codec sends of a gradient, and the bits that it spends on them."""
    data = deltawire.encode(gradient, spec, min_elements=0)
    listed = said_by(DELTAWIRE, "inspect", "--json", "-", given=data)
    sections = {each["name"]: each["bits"] for each in json.loads(listed)["sections"]}
    return int(np.count_nonzero(deltawire.decode(data))), sections.get("keys", 0)


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

    def __init__(self, features: int) -> None:
        self.weights = np.zeros(features)
        self._mean = np.zeros(features)
        self._square = np.zeros(features)

    def step(self, gradient: np.ndarray) -> None:
        """One step."""
        wide = gradient.astype(np.float64)
        self._mean += (1 - _BETAS[0]) * (wide - self._mean)
        self._square += (1 - _BETAS[1]) * (wide**2 - self._square)
        self.weights -= _RATE * self._mean / np.sqrt(self._square + _EPSILON)


def gradients(rows: SparseRows, ranks: int) -> Iterator[np.ndarray]:
    """Trains, and yields every rank's gradient of every step."""
    optimizer, chance = Adam(rows.features), np.random.default_rng(1)
    for _ in range(_STEPS):
        parts = np.array_split(chance.permutation(rows.count), ranks)
        shares = [gradient_of(rows, part, optimizer.weights) for part in parts]
        yield from shares
        optimizer.step(sum(shares) / np.float32(ranks))


def measure(scale: Settings, cell: Settings, seed: int) -> Metrics:
    """By the size of the length flag, and SketchML's; and how many features there are for each
    key."""
    rows, features = scale["rows"], round(scale["features"] * cell["features"])
    with (
        tempfile.TemporaryDirectory() as folder,
        data_file("kdd12", rows, features, seed).open() as text,
    ):
        head = Path(folder) / "head.libsvm"
        head.write_text("".join(islice(text, round(0.07 * rows))))
        trained = load_sparse_rows(head, features)
    sums = {name: np.zeros(2, np.int64) for name in _SPECS}
    values = 0
    for gradient in gradients(trained, scale["workers"]):
        values += gradient.size
        for name, spec in _SPECS.items():
            sums[name] += keys_of(gradient, spec)
    found = {name: bits / keys if keys else math.nan for name, (keys, bits) in sums.items()}
    return {**found, "gap": values / max(sums["auto"][0], 1)}
