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


def read_ptb(folder: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """(numbers of the words of ptb/ptb.train.txt, of ptb.valid.txt, how many different ones), line
    ends included. Raises DataError."""
    train, valid = (
        np.array(_text(folder / "ptb" / f"ptb.{name}.txt").replace("\n", " <eos> ").split())
        for name in ("train", "valid")
    )
    known, numbers = np.unique(train, return_inverse=True)
    unseen = np.searchsorted(known, valid)
    if unseen.max(initial=0) >= len(known) or (known[unseen] != valid).any():
        raise DataError(
            f"{folder}/ptb: ptb.valid.txt has words that ptb.train.txt lacks; get it again"
        )
    return numbers.astype(np.int64), unseen.astype(np.int64), len(known)


def read_sentences(
    folder: Path, vocabulary: int, length: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """The sentences of sst2/stsa.binary.train: (numbers of their first `length` words of shape
    (sentences, length), 0 where there is none; labels, 0 or 1; how many different numbers). The
    most frequent words have numbers of their own, all others share one. Raises DataError."""
    lines = _text(folder / "sst2" / "stsa.binary.train").splitlines()
    labels = np.array([int(line[:1]) for line in lines], np.int64)
    sentences = [line[1:].split()[:length] for line in lines]
    known, counts = np.unique([w for each in sentences for w in each], return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[: vocabulary - 2]
    numbers = {str(known[i]): rank + 2 for rank, i in enumerate(frequent)}
    words = np.zeros((len(sentences), length), np.int64)
    for row, sentence in zip(words, sentences, strict=True):
        row[: len(sentence)] = [numbers.get(word, 1) for word in sentence]
    return words, labels, vocabulary
