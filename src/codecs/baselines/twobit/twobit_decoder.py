"""twobit, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded, number
from spec_hashes import require

SMALLEST = float(np.finfo(np.float32).smallest_subnormal)
SHIFTS = np.array([6, 4, 2, 0], "u1")


def decode(coded: Coded) -> np.ndarray:
    """Look up each two bits, the highest of a byte first."""
    threshold = np.float32(coded.parameters["t"])
    packed = np.frombuffer(coded.chunk, "u1")
    wanted = -(-coded.count // 4)
    require(len(packed) >= wanted, "Truncated", "a chunk with too few bytes")
    require(len(packed) == wanted, "Corrupt", "a chunk with too many bytes")
    codes = ((packed[:, None] >> SHIFTS) & 3).reshape(-1)
    require(not (codes[: coded.count] == 1).any(), "Corrupt", "the code 01")
    require(not codes[coded.count :].any(), "Corrupt", "padding that is not 0")
    values = np.array([0, 0, -threshold, threshold], "<f4")
    return values[codes[: coded.count]]


CODEC = Codec(
    "twobit",
    25,
    decode,
    chunk_elements=65536,
    parameters={"t": number(SMALLEST, float("inf"))},
)

HALF = {"t": "0.5"}


def made(*values: int, count: int, parameters: dict[str, str] | None = None) -> Coded:
    """Make a part of one chunk."""
    return Coded([bytes(values)], count, parameters=parameters or HALF)


GOOD = {
    "plus, minus, zero, plus": (made(0xE3, count=4), [0.5, -0.5, 0, 0.5]),
    "padding": (made(0xE3, 0x80, count=5), [0.5, -0.5, 0, 0.5, -0.5]),
    "another threshold": (made(0xE0, count=2, parameters={"t": "3"}), [3, -3]),
    "the first alone": (made(0xC0, count=1), [0.5]),
}
REFUSED = {
    "01 first": (made(0x40, count=4), "Corrupt"),
    "01 last": (made(0xE1, count=4), "Corrupt"),
    "padding": (made(0xE3, count=3), "Corrupt"),
    "the padding's upper bit": (made(0xE2, count=3), "Corrupt"),
    "too short": (made(0xE3, count=5), "Truncated"),
    "too long": (made(0xE3, 0, count=4), "Corrupt"),
    "a scalar": (Coded([bytes([0xE3])], 4, (1, 0), HALF), "Corrupt"),
}
