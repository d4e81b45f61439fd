"""sketchml, decoded as its spec.md says."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import numpy as np
from spec_codec import Codec, Coded, number
from spec_hashes import require

CHUNK_PAIRS = 65536
INFINITY = 0x7F800000
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
ABOVE_1 = np.nextafter(np.float32(1), np.float32(2))


def whole(name: str, choices: set[int]) -> Callable[[str], None]:
    """Make the check of a parameter that is one of these whole numbers."""

    def check(text: str) -> None:
        known = re.fullmatch(r"[0-9]+", text) is not None and int(text) in choices
        require(known, "Corrupt", f"{name}={text} is out of range")
        require(text == str(int(text)), "Corrupt", f"{name}={text} has leading zeros")

    return check


class Reader:
    """Reads a chunk from front to back."""

    def __init__(self, data: bytes) -> None:
        """Begin at byte 0."""
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Take so many bytes."""
        require(size <= len(self._data) - self._at, "Truncated", "the chunk ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        """Take a number of so many bytes."""
        return int.from_bytes(self.take(size), "little")

    def numbers(self, count: int, width: int) -> np.ndarray:
        """Take numbers of so many bits, and the zero bits that fill their last byte."""
        size = count * width
        bits = np.unpackbits(np.frombuffer(self.take(ceil(size / 8)), "u1"), bitorder="little")
        require(not bits[size:].any(), "Corrupt", "a set pad bit")
        places = 1 << np.arange(width, dtype="<i8")
        return bits[:size].reshape(count, width).astype("<i8") @ places

    def finish(self) -> None:
        """Check that nothing is left."""
        require(self._at == len(self._data), "Corrupt", "bytes behind the last group")


@dataclass(frozen=True)
class Sketch:
    """What all chunks of a part have in common."""

    q: int
    r: int
    rows: int
    cols: np.float32
    seed: int
    count: int  # of elements

    def columns(self, keys: np.ndarray, row: int, t: int) -> np.ndarray:
        """Give the column of each key in a row of t cells."""
        key = mix(np.uint64(self.seed) + GOLDEN)
        index = 4 * keys.astype("<u8") + np.uint64(row + 1)
        upper = mix(key + GOLDEN * index) >> np.uint64(32)
        return (upper * np.uint64(t) >> np.uint64(32)).astype("<i8")


def mix(z: np.ndarray) -> np.ndarray:
    """Mix the bits of 64-bit numbers; products wrap."""
    with np.errstate(over="ignore"):
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def group_keys(reader: Reader, first: int, left: int, sketch: Sketch) -> np.ndarray:
    """Take the keys of a group, at most those that the chunk has left."""
    c = reader.number(4)
    require(1 <= c <= left, "Corrupt", "a group without keys, or of more than the chunk has")
    keys = []
    key = first - 1
    for more in reader.numbers(c, 2).tolist():
        gap = reader.number(1 + more)
        require(more == 0 or gap >> 8 * more > 0, "Corrupt", "a gap in more bytes than it needs")
        key += gap + 1
        require(key < sketch.count, "Corrupt", "a key outside the tensor")
        keys.append(key)
    return np.array(keys, "<i8")


def group_buckets(reader: Reader, keys: np.ndarray, width: int, sketch: Sketch) -> np.ndarray:
    """Take the table of a group; give the bucket of each key, from the group's first."""
    t = ceil(float(sketch.cols) * len(keys))
    cells = reader.numbers(sketch.rows * t, (width - 1).bit_length()).reshape(sketch.rows, t)
    require(not (cells >= width).any(), "Corrupt", "a cell beyond the group's buckets")
    found = np.zeros(len(keys), "<i8")
    for row, line in enumerate(cells):
        columns = sketch.columns(keys, row, t)
        unused = np.ones(t, bool)
        unused[columns] = False
        require(bool((line[unused] == width - 1).all()), "Corrupt", "a cell that no key has is set")
        found = np.maximum(found, line[columns])
    return found


def chunk_means(reader: Reader, buckets: int) -> np.ndarray:
    """Take the means of one sign."""
    means = np.frombuffer(reader.take(4 * buckets), "<f4")
    patterns = means.view("<u4")
    valid = (patterns > 0) & (patterns < INFINITY)
    require(bool(valid.all()), "Corrupt", "a mean is not finite and above 0")
    require(not (means[1:] < means[:-1]).any(), "Corrupt", "means that fall")
    return means


def decode_chunk(data: bytes, sketch: Sketch) -> tuple[np.ndarray, np.ndarray]:
    """Give the keys of a chunk, as they grow, and their values."""
    reader = Reader(data)
    pairs = reader.number(4)
    require(pairs <= CHUNK_PAIRS, "Corrupt", "more than 65,536 pairs")
    if pairs == 0:
        reader.finish()
        return np.zeros(0, "<i8"), np.zeros(0, "<f4")
    require(pairs <= sketch.count, "Corrupt", "more pairs than elements")
    first = reader.number(4)
    counts = [reader.number(2), reader.number(2)]
    require(max(counts) <= sketch.q // 2, "Corrupt", "too many buckets of one sign")
    require(1 <= sum(counts) <= pairs, "Corrupt", "no buckets, or more than pairs")
    means = [chunk_means(reader, count) for count in counts]
    keys, values = [], []
    left = pairs
    for sign, count, mean in zip((1, -1), counts, means, strict=True):
        groups = min(sketch.r // 2, count)
        in_group = [i * groups // count for i in range(count)]
        begin = 0
        for group in range(groups):
            width = in_group.count(group)
            keys.append(group_keys(reader, first, left, sketch))
            left -= len(keys[-1])
            found = begin + group_buckets(reader, keys[-1], width, sketch)
            values.append(sign * mean[found])
            begin += width
    reader.finish()
    require(left == 0, "Corrupt", "fewer keys than pairs")
    all_keys = np.concatenate(keys)
    order = np.argsort(all_keys)
    all_keys = all_keys[order]
    require(bool((all_keys[1:] > all_keys[:-1]).all()), "Corrupt", "a key of two groups")
    require(int(all_keys[0]) == first, "Corrupt", "a first key that no group has")
    return all_keys, np.concatenate(values)[order]


def decode(coded: Coded) -> np.ndarray:
    """Put the values of all pairs at their keys, and +0 elsewhere."""
    q, r, rows = (int(coded.parameters[name]) for name in ("q", "r", "rows"))
    cols = np.float32(coded.parameters["cols"])
    sketch = Sketch(q, r, rows, cols, coded.scalars[0], coded.count)
    require(len(coded.chunks) > 0, "Corrupt", "a part without chunks")
    values = np.zeros(coded.count, "<f4")
    last = -1
    for index, chunk in enumerate(coded.chunks):
        keys, found = decode_chunk(chunk, sketch)
        behind = index + 1 < len(coded.chunks)
        require(not behind or len(keys) == CHUNK_PAIRS, "Corrupt", "a chunk that is not full")
        require(len(keys) > 0 or index == 0, "Corrupt", "an empty chunk among others")
        if len(keys) > 0:
            require(int(keys[0]) > last, "Corrupt", "chunks whose keys do not grow")
            last = int(keys[-1])
            values[keys] = found
    return values


CODEC = Codec(
    "sketchml",
    24,
    decode,
    scalars=1,
    parameters={
        "q": whole("q", {2 << power for power in range(9)}),
        "r": whole("r", {2, 4, 8, 16, 32}),
        "rows": whole("rows", {1, 2, 3, 4}),
        "cols": number(np.float32(0.05), ABOVE_1),
    },
)


# The parts below are made by hand. At cols=0.3 a group of up to 3 keys has one column.
INF, NAN = INFINITY, 0x7FC00000


def head(pairs: int, first: int, above: int, below: int, *means: float) -> bytes:
    """Write the head of a chunk and the means of its buckets."""
    numbers = np.array([pairs, first], "<u4").tobytes() + np.array([above, below], "<u2").tobytes()
    return numbers + np.array(means, "<f4").tobytes()


def group(c: int, flags: str, gaps: str, cells: str = "") -> bytes:
    """Write a group: flags and cells as bits in their order, gaps as bytes in hexadecimal."""
    streams = []
    for text in (flags, cells):
        found = np.array(list(text.replace(" ", "")), "U1").astype("u1")
        streams.append(np.packbits(found, bitorder="little").tobytes())
    return c.to_bytes(4, "little") + streams[0] + bytes.fromhex(gaps) + streams[1]


def part(count: int, *chunks: bytes, seed: int = 0, **parameters: str) -> Coded:
    """Make a part of these chunks."""
    usual = {"q": "8", "r": "4", "rows": "2", "cols": "0.3"}
    return Coded(list(chunks), count, (seed, 0), usual | parameters)


def one(mean: int) -> Coded:
    """Make a part of one element, in a bucket whose mean has these bits."""
    return part(1, head(1, 0, 1, 0) + mean.to_bytes(4, "little") + group(1, "00", "00"))


EXAMPLE = {"q": "4", "r": "2", "rows": "1", "cols": "1"}
WIDE = {"r": "2", "rows": "1"}
TWO = head(3, 0, 2, 1, 1.5, 2, 3)
LAST = group(1, "00", "03")
FULL = head(65536, 0, 1, 0, 2) + group(65536, "00" * 65536, "00" * 65536)
NONE = bytes(4)
LONG = head(2, 5, 1, 0, 4)
GOOD = {
    "the example": (
        part(6, TWO + group(2, "00 00", "00 04", "10") + LAST, **EXAMPLE),
        [1.5, 0, 0, -3, 0, 1.5],
    ),
    "one pair": (part(1, head(1, 0, 1, 0, 2) + group(1, "00", "00")), [2]),
    "one pair below 0, any seed": (
        part(3, head(1, 2, 0, 1, 2) + group(1, "00", "00"), seed=2**32 - 1),
        [0, 0, -2],
    ),
    "no pair": (part(3, NONE, seed=77), [0, 0, 0]),
    "groups of 2 buckets and 1, the larger cell": (
        part(
            4,
            head(3, 1, 3, 0, 1, 2, 3) + group(2, "00 00", "00 01", "01") + group(1, "00", "01"),
        ),
        [0, 2, 3, 2],
    ),
    "cells of 2 bits, the lowest first": (
        part(3, head(3, 0, 3, 0, 1, 2, 3) + group(3, "00 00 00", "00 00 00", "01"), **WIDE),
        [3, 3, 3],
    ),
    "means alike": (
        part(2, head(2, 0, 2, 0, 1, 1) + group(2, "00 00", "00 00", "0"), **WIDE),
        [1, 1],
    ),
    "means that fall from one sign to the other": (
        part(2, head(2, 0, 1, 1, 5, 1) + group(1, "00", "01") + group(1, "00", "00")),
        [-1, 5],
    ),
    "a gap of 2 bytes": (
        part(300, LONG + group(2, "00 10", "00 00 01")),
        [*[0] * 5, 4, *[0] * 256, 4, *[0] * 37],
    ),
    "a gap of 3 bytes": (
        part(65600, LONG + group(2, "00 01", "00 00 00 01")),
        [*[0] * 5, 4, *[0] * 65536, 4, *[0] * 57],
    ),
    "a full chunk and one more": (
        part(65538, FULL, head(1, 65537, 0, 1, 3) + group(1, "00", "00")),
        [*[2] * 65536, 0, -3],
    ),
    "the smallest mean": (one(1), [2.0**-149]),
    "the largest mean": (one(INF - 1), [3.4028234663852886e38]),
}
LARGE = np.array([65537], "<u4").tobytes()
REFUSED = {
    "no chunk": (part(1), "Corrupt"),
    "3 bytes": (part(1, bytes(3)), "Truncated"),
    "an end inside the head": (part(1, head(1, 0, 1, 0)[:11]), "Truncated"),
    "an end inside the means": (part(1, head(1, 0, 1, 0, 2)[:15]), "Truncated"),
    "no group": (part(1, head(1, 0, 1, 0, 2)), "Truncated"),
    "an end before the flags": (part(1, head(1, 0, 1, 0, 2) + b"\1\0\0\0"), "Truncated"),
    "an end before the gaps": (part(1, head(1, 0, 1, 0, 2) + group(1, "00", "")), "Truncated"),
    "an end inside a gap": (part(999, LONG + group(2, "00 10", "00 00")), "Truncated"),
    "an end before the cells": (
        part(6, TWO + group(2, "00 00", "00 04"), **EXAMPLE),
        "Truncated",
    ),
    "an end before the last group": (
        part(6, TWO + group(2, "00 00", "00 04", "10"), **EXAMPLE),
        "Truncated",
    ),
    "bytes behind no pair": (part(3, NONE + b"\0"), "Corrupt"),
    "bytes behind the last group": (
        part(1, head(1, 0, 1, 0, 2) + group(1, "00", "00") + b"\0"),
        "Corrupt",
    ),
    "65,537 pairs": (part(99999, LARGE + FULL[4:]), "Corrupt"),
    "more pairs than elements": (part(1, LONG + group(2, "00 00", "00 00")), "Corrupt"),
    "no bucket": (part(1, head(1, 0, 0, 0) + group(1, "00", "00")), "Corrupt"),
    "more buckets than pairs": (
        part(2, head(1, 0, 2, 0, 1, 2) + group(1, "00", "00", "00"), **WIDE),
        "Corrupt",
    ),
    "too many buckets above 0": (
        part(2, head(2, 0, 2, 0, 1, 2) + group(2, "00 00", "00 00", "0"), **WIDE, q="2"),
        "Corrupt",
    ),
    "too many buckets below 0": (
        part(2, head(2, 0, 0, 2, 1, 2) + group(2, "00 00", "00 00", "0"), **WIDE, q="2"),
        "Corrupt",
    ),
    "means that fall": (
        part(2, head(2, 0, 2, 0, 2, 1) + group(2, "00 00", "00 00", "0"), **WIDE),
        "Corrupt",
    ),
    "means below 0 that fall": (
        part(2, head(2, 0, 0, 2, 2, 1) + group(2, "00 00", "00 00", "0"), **WIDE),
        "Corrupt",
    ),
    "a group without keys": (
        part(2, head(2, 0, 1, 1, 1, 1) + group(0, "", "") + group(2, "00 00", "00 00")),
        "Corrupt",
    ),
    "more keys than pairs": (
        part(3, head(2, 0, 1, 0, 1) + group(3, "00 00 00", "00 00 00")),
        "Corrupt",
    ),
    "fewer keys than pairs": (part(3, head(2, 0, 1, 0, 1) + group(1, "00", "00")), "Corrupt"),
    "a gap of 2 bytes for 1": (part(999, LONG + group(2, "00 10", "00 ff 00")), "Corrupt"),
    "a gap of 4 bytes for 3": (part(999, LONG + group(2, "00 11", "00 01 00 00 00")), "Corrupt"),
    "a first gap of 2 bytes for 1": (
        part(1, head(1, 0, 1, 0, 1) + group(1, "10", "00 00")),
        "Corrupt",
    ),
    "a first key outside": (part(5, head(1, 5, 1, 0, 1) + group(1, "00", "00")), "Corrupt"),
    "a key outside": (part(7, LONG + group(2, "00 00", "00 01")), "Corrupt"),
    "a key far outside": (part(7, LONG + group(2, "00 11", "00 ff ff ff ff")), "Corrupt"),
    "a key that would wrap": (part(7, LONG + group(2, "00 11", "00 fb ff ff ff")), "Corrupt"),
    "a key of both signs": (
        part(2, head(2, 0, 1, 1, 1, 1) + group(1, "00", "00") + group(1, "00", "00")),
        "Corrupt",
    ),
    "a key of two groups": (
        part(
            4,
            head(3, 1, 3, 0, 1, 2, 3) + group(2, "00 00", "00 01", "01") + group(1, "00", "02"),
        ),
        "Corrupt",
    ),
    "a first key that no group has": (
        part(2, head(1, 0, 1, 0, 1) + group(1, "00", "01")),
        "Corrupt",
    ),
    "a pad bit behind the flags": (
        part(1, head(1, 0, 1, 0, 2) + group(1, "001", "00")),
        "Corrupt",
    ),
    "a pad bit behind the cells": (
        part(6, TWO + group(2, "00 00", "00 04", "101") + LAST, **EXAMPLE),
        "Corrupt",
    ),
    "a cell of W": (
        part(3, head(3, 0, 3, 0, 1, 2, 3) + group(3, "00 00 00", "00 00 00", "11"), **WIDE),
        "Corrupt",
    ),
    "a cell that no key has": (
        part(6, TWO + group(2, "00 00", "00 04", "00") + LAST, **EXAMPLE),
        "Corrupt",
    ),
    "a chunk that is not full": (
        part(
            9,
            head(1, 0, 1, 0, 2) + group(1, "00", "00"),
            head(1, 1, 1, 0, 2) + group(1, "00", "00"),
        ),
        "Corrupt",
    ),
    "an empty chunk behind a full one": (part(65538, FULL, NONE), "Corrupt"),
    "an empty chunk before another": (
        part(9, NONE, head(1, 0, 1, 0, 2) + group(1, "00", "00")),
        "Corrupt",
    ),
    "chunks that do not grow": (
        part(65538, FULL, head(1, 65535, 1, 0, 2) + group(1, "00", "00")),
        "Corrupt",
    ),
} | {
    f"a mean of {mean:#x}": (one(mean), "Corrupt") for mean in (0, INF, NAN, 0x80000000, 0xBF800000)
}
