"""Sparse data sets in LIBSVM's text format: `label index:value index:value ...`, one example a
line, with indices from 1 in ascending order."""

import dataclasses
from pathlib import Path

import numpy as np

from lab.data.images import DataError, read_packed


@dataclasses.dataclass(frozen=True)
class SparseRows:
    """A data set: row i has columns[begin[i]:begin[i + 1]], each with its value.

    Attributes:
        labels: float64 of shape (rows,), -1 or 1.
        begin: int64 of shape (rows + 1,).
        columns, values: int64 from 0, and float64; of equal length.
        features: the number of columns.
    """

    labels: np.ndarray
    begin: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    features: int

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.labels)


def load_sparse_rows(path: Path, features: int = 0) -> SparseRows:
    """Reads a file, or the same one with .xz behind its name. Rows are scaled to length 1; if there
    are more than two labels, the lower half is -1.

    Raises:
        DataError: it is missing or damaged.
    """
    try:
        if path.suffix == ".xz":
            path = path.with_suffix("")
        return _parse(read_packed(path).decode("ascii"), features)
    except ValueError as cause:
        raise DataError(f"{path}: {cause}; give a file in LIBSVM's format") from cause


def _parse(text: str, features: int) -> SparseRows:
    labels, begin, columns, values = [], [0], [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        label, *pairs = line.split()
        try:
            labels.append(float(label))
            for pair in pairs:
                column, value = pair.split(":")
                columns.append(int(column) - 1)
                values.append(float(value))
        except ValueError as cause:
            raise ValueError(f"line {number} is not a row ({cause})") from cause
        begin.append(len(columns))
    if not labels:
        raise ValueError("no examples")
    return _scaled(np.array(labels), np.array(begin), np.array(columns), np.array(values), features)


def _scaled(
    labels: np.ndarray, begin: np.ndarray, columns: np.ndarray, values: np.ndarray, features: int
) -> SparseRows:
    columns = columns.astype(np.int64)
    if columns.size and columns.min() < 0:
        raise ValueError("an index below 1")
    rows = np.repeat(np.arange(len(labels)), np.diff(begin))
    lengths = np.sqrt(np.bincount(rows, values**2, len(labels)))
    values = values / np.maximum(lengths, np.finfo(np.float64).tiny)[rows]
    kinds = np.unique(labels)
    signs = np.where(labels >= kinds[len(kinds) // 2], 1.0, -1.0)
    return SparseRows(signs, begin, columns, values, max(features, int(columns.max(initial=0)) + 1))
