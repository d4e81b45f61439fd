"""onebit, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded
from spec_hashes import require

INFINITY = 0x7F800000
SIGN = 1 << 31


def decode(coded: Coded) -> np.ndarray:
    """Give each element the mean of its side."""
    high, low = coded.scalars
    require(high < INFINITY, "Corrupt", "the mean of what isn't negative")
    require(low == 0 or SIGN < low < SIGN + INFINITY, "Corrupt", "the mean of what is negative")
    size = -(-coded.count // 8)
    require(len(coded.chunk) >= size, "Truncated", "fewer bits than elements")
    require(len(coded.chunk) <= size, "Corrupt", "more bytes than the elements need")
    bits = np.unpackbits(np.frombuffer(coded.chunk, "u1"), bitorder="little")
    require(not bits[coded.count :].any(), "Corrupt", "a set bit behind the last element")
    require(low != 0 or not bits.any(), "Corrupt", "a negative element without a mean")
    return np.where(bits[: coded.count] == 1, coded.number(1), coded.number(0))


CODEC = Codec("onebit", 9, decode, chunk_elements=65536, scalars=2)

TWO, MINUS_THREE = 0x40000000, 0xC0400000


def of(chunk: list[int], count: int, scalars: tuple[int, int] = (TWO, MINUS_THREE)) -> Coded:
    """Make a part of one chunk."""
    return Coded([bytes(chunk)], count, scalars)


GOOD = {
    "lowest bits first": (of([0b01], 2), [-3, 2]),
    "a second byte": (of([0b10000000, 0b1], 10), [2] * 7 + [-3, -3, 2]),
    "nothing negative": (of([0], 3, (TWO, 0)), [2, 2, 2]),
    "zeros": (of([0], 3, (0, 0)), [0, 0, 0]),
    "nothing but negative": (of([0b111], 3, (0, MINUS_THREE)), [-3, -3, -3]),
    "one side of a part": (of([0b111], 3), [-3, -3, -3]),
}
REFUSED = {
    "too short": (of([0], 9), "Truncated"),
    "too long": (of([0, 0], 8), "Corrupt"),
    "a set bit behind the last": (of([0b1000], 3), "Corrupt"),
    "negative without a mean": (of([0b100], 3, (TWO, 0)), "Corrupt"),
} | {
    f"means of {high:#x} and {low:#x}": (of([0], 3, (high, low)), "Corrupt")
    for high, low in [(0x7F800000, 0), (0x7FC00000, 0), (0x80000000, 0), (MINUS_THREE, 0)]
    + [(TWO, 1), (TWO, TWO), (TWO, 0x80000000), (TWO, 0xFF800000), (TWO, 0xFFC00000)]
}
