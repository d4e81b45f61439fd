"""Texts as sequences of character or word numbers; each file plain or compressed as .xz."""

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
    included: the most frequent words in alphabetical order, then one number for all others.
    Raises DataError."""
    text = _text(folder / "wikitext-2" / "wiki.valid.tokens")
    words = np.array(text.replace("\n", " <eos> ").split())
    known, numbers, counts = np.unique(words, return_inverse=True, return_counts=True)
    kept = np.sort(np.argsort(-counts, kind="stable")[: vocabulary - 1])
    renumbered = np.full(len(known), vocabulary - 1, np.int64)
    renumbered[kept] = np.arange(len(kept))
    return renumbered[numbers]


def read_bytes(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The bytes (uint8) of wikitext-2's validation text and of its test text. Raises DataError."""
    names = ("wiki.valid.tokens", "wiki.test.tokens")
    both = [read_packed(folder / "wikitext-2" / name) for name in names]
    return np.frombuffer(both[0], np.uint8).copy(), np.frombuffer(both[1], np.uint8).copy()


def _text(path: Path) -> str:
    try:
        return read_packed(path).decode("utf-8")
    except UnicodeDecodeError as cause:
        raise DataError(f"{path}: is not UTF-8 text; get it again") from cause
