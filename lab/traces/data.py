"""The data sets that the recordings train on, as files of a folder: each plain or, with .xz behind
its name, compressed."""

import dataclasses
import lzma
import os
from pathlib import Path

import numpy as np

from lab.idx import DataError

_CIFAR_RECORD = 1 + 3 * 32 * 32


def data_folder() -> Path:
    """What DELTAWIRE_DATA names. Raises DataError without it."""
    folder = os.environ.get("DELTAWIRE_DATA", "")
    if not folder:
        raise DataError(
            "DELTAWIRE_DATA names no folder of data; set it to one with cifar-10-batches-bin/, "
            "wikitext-2/, shakespeare/ and libsvm/"
        )
    return Path(folder)


def read_cifar10(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """(uint8 images of shape (10,000, 3, 32, 32), labels below 10) of cifar-10-batches-bin's first
    batch. Raises DataError."""
    path = folder / "cifar-10-batches-bin" / "data_batch_1.bin"
    content = np.frombuffer(_read(path), np.uint8)
    if content.size == 0 or content.size % _CIFAR_RECORD:
        raise DataError(f"{path}: {content.size:,} bytes are no CIFAR-10 records; get it again")
    records = content.reshape(-1, _CIFAR_RECORD)
    if records[:, 0].max() >= 10:
        raise DataError(f"{path}: label {records[:, 0].max()} where 0 ... 9 are due; get it again")
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


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
        return _read(path).decode("utf-8")
    except UnicodeDecodeError as cause:
        raise DataError(f"{path}: is no text in UTF-8; get it again") from cause


def _read(path: Path) -> bytes:
    packed = path.with_name(path.name + ".xz")
    try:
        if packed.is_file():
            return lzma.decompress(packed.read_bytes())
        return path.read_bytes()
    except (OSError, lzma.LZMAError) as cause:
        raise DataError(f"{path}[.xz]: can't be read ({cause})") from cause
