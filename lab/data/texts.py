"""The data sets that the recordings train on, as files of a folder: each plain or, with .xz behind
its name, compressed."""

import dataclasses
from pathlib import Path

import numpy as np

from lab.data.images import DataError, read_packed


def read_characters(folder: Path) -> tuple[np.ndarray, int]:
    """(numbers of the characters of shakespeare/input.txt, how many different ones). Raises
    DataError."""
    text = _text(folder / "shakespeare" / "input.txt")
    known, numbers = np.unique(np.array(list(text)), return_inverse=True)
    return numbers.astype(np.int64), len(known)


def read_words(folder: Path, vocabulary: int) -> np.ndarray:
    """Numbers, below `vocabulary`, of the words of wikitext-2/wiki.valid.tokens, line ends
    included: the most frequent words in the order of the alphabet, then all others as one. Raises
    DataError."""
    text = _text(folder / "wikitext-2" / "wiki.valid.tokens")
    words = np.array(text.replace("\n", " <eos> ").split())
    known, numbers, counts = np.unique(words, return_inverse=True, return_counts=True)
    kept = np.sort(np.argsort(-counts, kind="stable")[: vocabulary - 1])
    renumbered = np.full(len(known), vocabulary - 1, np.int64)
    renumbered[kept] = np.arange(len(kept))
    return renumbered[numbers]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Sparse rows: row i has labels[i], and columns and values from starts[i] to starts[i + 1].

    Attributes:
        columns: int64, from 0.
        values: float32; each row has the length 1.
    """

    labels: np.ndarray
    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray


def read_rows(folder: Path) -> Rows:
    """20news-bydate.train.libsvm, "LABEL column:count ...", columns from 1; each row is divided by
    its length. Raises DataError."""
    path = folder / "libsvm" / "20news-bydate.train.libsvm"
    labels, starts, columns, values = [], [0], [], []
    try:
        for line in _text(path).splitlines():
            label, *pairs = line.split()
            numbers = np.array([pair.split(":") for pair in pairs], np.float64).reshape(-1, 2)
            labels.append(int(label))
            columns.append(numbers[:, 0].astype(np.int64) - 1)
            values.append((numbers[:, 1] / np.linalg.norm(numbers[:, 1])).astype(np.float32))
            starts.append(starts[-1] + len(numbers))
    except ValueError as cause:
        raise DataError(f"{path}: line {len(labels) + 1} is no row of libsvm ({cause})") from cause
    return Rows(np.array(labels), np.array(starts), np.concatenate(columns), np.concatenate(values))


def _text(path: Path) -> str:
    try:
        return read_packed(path).decode("utf-8")
    except UnicodeDecodeError as cause:
        raise DataError(f"{path}: is no text in UTF-8; get it again") from cause
