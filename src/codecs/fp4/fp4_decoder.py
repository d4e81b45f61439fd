"""fp4, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded, one_of
from spec_hashes import require

# What codes 0 to 7 stand for; those from 8 on have the sign. The largest scale's byte.
FORMATS = {
    "e2m1": ([0, 0.5, 1, 1.5, 2, 3, 4, 6], 252),
    "e3m0": ([0, 0.25, 0.5, 1, 2, 4, 8, 16], 250),
}


def decode(coded: Coded) -> np.ndarray:
    """Multiply each code's number with the power of two of its block."""
    positive, largest = FORMATS[coded.parameters["format"]]
    block = int(coded.parameters["block"])
    blocks = -(-coded.count // block)
    size = blocks + -(-coded.count // 2)
    require(len(coded.chunk) >= size, "Truncated", "the chunk ends early")
    require(len(coded.chunk) <= size, "Corrupt", "bytes behind the last code")
    scales = np.frombuffer(coded.chunk, "u1", blocks)
    require(bool((scales <= largest).all()), "Corrupt", "a scale that is too large")
    packed = np.frombuffer(coded.chunk, "u1", offset=blocks)
    codes = np.stack([packed & 15, packed >> 4], axis=1).reshape(-1)
    require(not codes[coded.count :].any(), "Corrupt", "a set bit behind the last code")
    numbers = np.array([*positive, *(-np.array(positive, "f8"))])[codes[: coded.count]]
    powers = np.repeat(2.0 ** (scales.astype("<f8") - 127), block)[: coded.count]
    return (numbers * powers).astype("<f4")


CODEC = Codec(
    "fp4",
    26,
    decode,
    chunk_elements=65536,
    parameters={
        "format": one_of(*FORMATS),
        "block": one_of("32", "64", "128", "256", "512", "1024"),
    },
)
