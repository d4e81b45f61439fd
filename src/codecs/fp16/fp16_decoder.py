"""fp16, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded
from spec_hashes import require


def decode(coded: Coded) -> np.ndarray:
    """Widen the chunk's float16 numbers."""
    values = np.frombuffer(coded.chunk, "<f2").astype("<f4")
    require(bool(np.isfinite(values).all()), "Corrupt", "a value that is not finite")
    return values


CODEC = Codec("fp16", 17, decode, chunk_elements=65536, width=2)

GOOD = {
    "one, minus two and a half": (Coded([bytes([0, 0x3C, 0, 0xC1])], 2), [1, -2.5]),
    "the smallest": (Coded([bytes([1, 0])], 1), [2.0**-24]),
    "the largest": (Coded([bytes([0xFF, 0x7B, 0xFF, 0xFB])], 2), [65504, -65504]),
    "minus zero": (Coded([bytes([0, 0x80])], 1), [-0.0]),
}
REFUSED = {
    "infinity": (Coded([bytes([0, 0x7C])], 1), "Corrupt"),
    "NaN": (Coded([bytes([0, 0x7E])], 1), "Corrupt"),
    "too short": (Coded([bytes(3)], 2), "Truncated"),
    "too long": (Coded([bytes(5)], 2), "Corrupt"),
    "a scalar": (Coded([bytes(2)], 1, (1, 0)), "Corrupt"),
}
