"""dropping, decoded as its spec.md says."""

import struct

import numpy as np
from spec_codec import SHARE, Codec, Coded
from spec_hashes import require


def decode(coded: Coded) -> np.ndarray:
    """Put the values where the bitmap has ones."""
    size = -(-coded.count // 8)
    require(len(coded.chunk) >= size, "Truncated", "the end inside the bitmap")
    bits = np.unpackbits(np.frombuffer(coded.chunk[:size], "u1"), bitorder="little")
    require(not bits[coded.count :].any(), "Corrupt", "a set bit behind the last element's")
    due = size + 4 * int(bits.sum())
    require(len(coded.chunk) >= due, "Truncated", "the end inside the values")
    require(len(coded.chunk) == due, "Corrupt", "bytes behind the last value")
    sent = np.frombuffer(coded.chunk[size:], "<f4")
    require(bool(np.isfinite(sent).all()), "Corrupt", "a value that is not finite")
    values = np.zeros(coded.count, "<f4")
    values[np.flatnonzero(bits)] = sent + np.float32(0)  # -0 is not written
    return values


CODEC = Codec("dropping", 16, decode, chunk_elements=65536, parameters={"k": SHARE})


def of(bitmap: list[int], count: int, *values: float) -> Coded:
    """Make a part of one chunk."""
    return Coded([bytes(bitmap) + struct.pack(f"<{len(values)}f", *values)], count)


GOOD = {
    "nothing": (of([0, 0], 9), [0] * 9),
    "the first and the last": (of([1, 1], 9, 1.5, -2), [1.5, *[0] * 7, -2]),
    "-0 is written nowhere": (of([3], 2, -0.0, 1), [0, 1]),
}
REFUSED = {
    "a set pad": (of([4], 2, 1), "Corrupt"),
    "half a bitmap": (of([0], 9), "Truncated"),
    "a value short": (of([3], 2, 1), "Truncated"),
    "a value too many": (of([1], 2, 1, 2), "Corrupt"),
    "infinity": (of([1], 2, np.inf), "Corrupt"),
    "NaN": (of([1], 2, np.nan), "Corrupt"),
}
