"""onebit, decoded as its spec.md says."""

from dataclasses import replace

import numpy as np
from spec_codec import Codec, Coded, one_of
from spec_hashes import require

INFINITY = 0x7F800000
SIGN = 1 << 31
CHUNK = 65536
LEAST_ROWS = 64


def check_means(high: int, low: int) -> None:
    """Refuse what is no mean."""
    require(high < INFINITY, "Corrupt", "the mean of what isn't negative")
    require(low == 0 or SIGN < low < SIGN + INFINITY, "Corrupt", "the mean of what is negative")


def read_bits(chunk: bytes, count: int) -> np.ndarray:
    """Take a bit for each element."""
    size = -(-count // 8)
    require(len(chunk) >= size, "Truncated", "fewer bits than elements")
    require(len(chunk) <= size, "Corrupt", "more bytes than the elements need")
    bits = np.unpackbits(np.frombuffer(chunk, "u1"), bitorder="little")
    require(not bits[count:].any(), "Corrupt", "a set bit behind the last element")
    return bits[:count]


def decode(coded: Coded) -> np.ndarray:
    """Give each element the mean of its side."""
    check_means(*coded.scalars)
    bits = read_bits(coded.chunk, coded.count)
    require(coded.scalars[1] != 0 or not bits.any(), "Corrupt", "a negative element without a mean")
    return np.where(bits == 1, coded.number(1), coded.number(0))


def decode_columns(coded: Coded) -> np.ndarray:
    """Give each element the mean of its side of its column."""
    count = coded.count
    if count == 0:
        return np.empty(0, "<f4")
    require(len(coded.chunks) == 1 + -(-count // CHUNK), "Corrupt", "another number of chunks")
    head, *chunks = coded.chunks
    require(len(head) >= 4, "Truncated", "no number of columns")
    columns = int.from_bytes(head[:4], "little")
    fits = 0 < columns <= max(1, count // LEAST_ROWS) and count % columns == 0
    require(fits, "Corrupt", f"{columns} columns of {count} elements")
    require(len(head) >= 4 + 8 * columns, "Truncated", "fewer means than columns")
    require(len(head) <= 4 + 8 * columns, "Corrupt", "more bytes than the means need")
    words = np.frombuffer(head[4:], "<u4").reshape(columns, 2)
    bits = [
        read_bits(chunk, min(CHUNK, count - CHUNK * number)) for number, chunk in enumerate(chunks)
    ]
    for high, low in words.tolist():
        check_means(high, low)
    negative = np.concatenate(bits).reshape(-1, columns) == 1
    missing = negative & (words[:, 1] == 0)
    require(not missing.any(), "Corrupt", "a negative element without a mean")
    means = words.view("<f4")
    return np.where(negative, means[:, 1], means[:, 0]).reshape(-1)


COLUMNS = Codec("onebit", 9, decode_columns)
CODEC = Codec(
    "onebit",
    9,
    decode,
    chunk_elements=CHUNK,
    scalars=2,
    parameters={"means": one_of("part", "column")},
    later={"means": "part"},
    variant=lambda given: COLUMNS if given.get("means") == "column" else None,
)

TWO, MINUS_THREE = 0x40000000, 0xC0400000


def of(chunk: list[int], count: int, scalars: tuple[int, int] = (TWO, MINUS_THREE)) -> Coded:
    """Make a part of one chunk."""
    return Coded([bytes(chunk)], count, scalars)


def columns(means: list[int], bits: bytes, count: int, number: int | None = None) -> Coded:
    """Make a part of columns."""
    given = len(means) // 2 if number is None else number
    head = np.array([given, *means], "<u4").tobytes()
    return Coded([head, bits], count, (0, 0), {"means": "column"})


GOOD = {
    "two columns": (
        columns([TWO, MINUS_THREE, TWO, 0], bytes([0b01, *[0] * 15]), 128),
        [-3] + [2] * 127,
    ),
    "one column, one element": (columns([TWO, MINUS_THREE], b"\1", 1), [-3]),
    "lowest bits first": (of([0b01], 2), [-3, 2]),
    "a second byte": (of([0b10000000, 0b1], 10), [2] * 7 + [-3, -3, 2]),
    "nothing negative": (of([0], 3, (TWO, 0)), [2, 2, 2]),
    "zeros": (of([0], 3, (0, 0)), [0, 0, 0]),
    "nothing but negative": (of([0b111], 3, (0, MINUS_THREE)), [-3, -3, -3]),
    "one side of a part": (of([0b111], 3), [-3, -3, -3]),
}
REFUSED = {
    "a column without a mean": (
        columns([TWO, MINUS_THREE, TWO, 0], bytes([2, *[0] * 15]), 128),
        "Corrupt",
    ),
    "no columns": (columns([], bytes(16), 128), "Corrupt"),
    "columns of less than 64": (columns([0, 0, 0, 0], bytes(16), 126), "Corrupt"),
    "columns that don't fit": (columns([0, 0, 0, 0], bytes(17), 129), "Corrupt"),
    "too few means": (columns([0, 0], bytes(16), 128, 2), "Truncated"),
    "too many means": (columns([0, 0, 0, 0], bytes(16), 128, 1), "Corrupt"),
    "too few bits": (columns([0, 0], bytes(15), 128), "Truncated"),
    "a bit behind the last of a column": (columns([TWO, MINUS_THREE], b"\4", 2), "Corrupt"),
    "columns and a mean of the part": (
        replace(columns([0, 0], b"\0", 1), scalars=(TWO, 0)),
        "Corrupt",
    ),
    "too short": (of([0], 9), "Truncated"),
    "too long": (of([0, 0], 8), "Corrupt"),
    "a set bit behind the last": (of([0b1000], 3), "Corrupt"),
    "negative without a mean": (of([0b100], 3, (TWO, 0)), "Corrupt"),
} | {
    f"means of {high:#x} and {low:#x}": (of([0], 3, (high, low)), "Corrupt")
    for high, low in [(0x7F800000, 0), (0x7FC00000, 0), (0x80000000, 0), (MINUS_THREE, 0)]
    + [(TWO, 1), (TWO, TWO), (TWO, 0x80000000), (TWO, 0xFF800000), (TWO, 0xFFC00000)]
}
