"""Bits per key of one batch's gradients, in data shaped like KDD12."""

import tempfile
from itertools import islice
from pathlib import Path

from lab.papers.declaration import Metrics, Settings
from lab.papers.fastsgd import key_bits
from lab.papers.fastsgd.trainings import data_file


def measure(scale: Settings, cell: Settings, seed: int) -> Metrics:
    """By the size of the length flag, and SketchML's; and how many features there are for each
    key."""
    rows, features = scale["rows"], round(scale["features"] * cell["features"])
    with (
        tempfile.TemporaryDirectory() as folder,
        data_file(rows, features, seed).open() as text,
    ):
        head = Path(folder) / "head.libsvm"
        head.write_text("".join(islice(text, round(0.07 * rows))))
        words = f"{head} --batch 1 --epochs 2 --ranks {scale['workers']} --features {features}"
        options = key_bits.parse(words.split())
        measured = key_bits.measure(key_bits.load_sparse_rows(head, options.features), options)
    found = {f"l{flag}": each.each() for flag, each in measured.fastsgd.items()}
    gap = options.features * measured.gradients / max(measured.auto.keys, 1)
    return {**found, "auto": measured.auto.each(), "sketchml": measured.sketchml.each(), "gap": gap}
