"""natural, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded
from spec_hashes import require


def decode(coded: Coded) -> np.ndarray:
    """Make powers of two of exponents and signs."""
    size = coded.count + -(-coded.count // 8)
    require(len(coded.chunk) >= size, "Truncated", "fewer bytes than the elements need")
    require(len(coded.chunk) <= size, "Corrupt", "more bytes than the elements need")
    data = np.frombuffer(coded.chunk, "u1")
    exponents = data[: coded.count].astype("i4")
    signs = np.unpackbits(data[coded.count :], bitorder="little")
    require(not signs[coded.count :].any(), "Corrupt", "a set bit behind the last sign")
    signs = signs[: coded.count]
    require(not (exponents == 255).any(), "Corrupt", "the exponent 255")
    require(not signs[exponents == 0].any(), "Corrupt", "a negative 0")
    powers = np.where(exponents == 0, 0.0, np.ldexp(1.0, exponents - 127))
    return np.where(signs == 1, -powers, powers).astype("<f4")


CODEC = Codec("natural", 12, decode, chunk_elements=65536)


def of(chunk: list[int], count: int, scalar: int = 0) -> Coded:
    """Make a part of one chunk."""
    return Coded([bytes(chunk)], count, (scalar, 0))


GOOD = {
    "powers of two": (of([127, 128, 126, 0b010], 3), [1, -2, 0.5]),
    "the smallest, the largest and 0": (of([1, 254, 0, 0b010], 3), [2.0**-126, -(2.0**127), 0]),
    "a second byte of signs": (of([127] * 9 + [0x80, 1], 9), [1] * 7 + [-1, -1]),
}
REFUSED = {
    "too short": (of([1, 1, 1], 3), "Truncated"),
    "too long": (of([1, 1, 1, 0, 0], 3), "Corrupt"),
    "the exponent 255": (of([255, 0], 1), "Corrupt"),
    "a negative 0": (of([1, 0, 0b10], 2), "Corrupt"),
    "a set bit behind the last": (of([1, 0b10], 1), "Corrupt"),
    "a scalar": (of([1, 0], 1, 1), "Corrupt"),
}
