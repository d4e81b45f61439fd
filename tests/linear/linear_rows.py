"""Rows of libsvm text that tests train on."""

import functools
from pathlib import Path

import numpy as np

FEATURES = 50


@functools.cache
def text_of(rows: int, seed: int = 1, labels: tuple[int, int] = (-1, 1)) -> str:
    """Rows with labels by a planted model and some noise; feature indices begin at 1."""
    random = np.random.default_rng(seed)
    planted = np.random.default_rng(99).normal(size=FEATURES)
    lines = []
    for _ in range(rows):
        keys = np.sort(random.choice(FEATURES, size=8, replace=False))
        values = random.normal(size=8).round(3)
        likely = 1 / (1 + np.exp(-3 * planted[keys] @ values))
        label = labels[int(random.random() < likely)]
        lines.append(
            f"{label} " + " ".join(f"{k + 1}:{v}" for k, v in zip(keys, values, strict=True))
        )
    return "\n".join(lines) + "\n"


def dense(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels of a file."""
    labels, rows = [], []
    for line in path.read_text().splitlines():
        label, *features = line.split()
        row = np.zeros(FEATURES + 1)
        for feature in features:
            key, value = feature.split(":")
            row[int(key)] = np.float32(value)
        labels.append(float(label))
        rows.append(row)
    return np.array(rows), np.array(labels)
