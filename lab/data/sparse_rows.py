"""Sparse data sets in the text format of LIBSVM: `label index:value index:value ...`, an example a
line, indices from 1 and ascending. Plain, or packed with xz."""

import dataclasses
import lzma
from pathlib import Path

import numpy as np

from lab.data.images import DataError


@dataclasses.dataclass(frozen=True)
class SparseRows:
    """A data set: row i has columns[begin[i]:begin[i + 1]], each with its value.

    Attributes:
        labels: float64 of shape (rows,), -1 or 1.
        begin: int64 of shape (rows + 1,).
        columns, values: int64 from 0 on, and float64; of equal length.
        features: columns that there are; `columns` are below it.
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
    """Reads a file. Rows are scaled to length 1; of more than two labels the lower half is -1.

    Raises:
        DataError: it is missing, or damaged.
    """
    try:
        data = path.read_bytes()
        text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode("ascii")
        return _rows_of([line.split() for line in text.splitlines() if line.strip()], features)
    except (OSError, lzma.LZMAError, ValueError) as cause:
        raise DataError(f"{path}: {cause}; give a file in LIBSVM's format") from cause


def _rows_of(lines: list[list[str]], features: int) -> SparseRows:
    if not lines:
        raise ValueError("no examples")
    labels = np.array([float(line[0]) for line in lines])
    pairs = [pair.split(":") for line in lines for pair in line[1:]]
    columns = np.array([int(column) for column, _ in pairs], np.int64) - 1
    values = np.array([float(value) for _, value in pairs])
    begin = np.cumsum([0] + [len(line) - 1 for line in lines])
    if columns.size and columns.min() < 0:
        raise ValueError("an index below 1")
    rows = np.repeat(np.arange(len(lines)), np.diff(begin))
    lengths = np.sqrt(np.bincount(rows, values**2, len(lines)))
    values /= np.maximum(lengths, np.finfo(np.float64).tiny)[rows]
    kinds = np.unique(labels)
    signs = np.where(labels >= kinds[len(kinds) // 2], 1.0, -1.0)
    return SparseRows(signs, begin, columns, values, max(features, int(columns.max(initial=0)) + 1))
