"""fp4, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded, one_of, part
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

E2M1 = {"format": "e2m1", "block": "32"}
E3M0 = {"format": "e3m0", "block": "32"}


GOOD = {
    "e2m1": (part([127, 0xA7, 0x81, 0x03], 5, E2M1), [6, -1, 0.5, -0.0, 1.5]),
    "e3m0": (part([128, 0xB7, 0x01], 3, E3M0), [32, -2, 0.5]),
    "the largest": (part([252, 0x0F], 1, E2M1), [-1.5 * 2.0**127]),
    "the largest of e3m0": (part([250, 0x07], 1, E3M0), [2.0**127]),
    "the smallest": (part([0, 0x01], 1, E3M0), [2.0**-129]),
    "two blocks": (part([127, 119] + [0x22] * 16 + [0x02], 33, E2M1), [1] * 32 + [2.0**-8]),
}
REFUSED = {
    "a scale above e2m1's": (part([253, 0], 1, E2M1), "Corrupt"),
    "a scale above e3m0's": (part([251, 0], 1, E3M0), "Corrupt"),
    "padding": (part([127, 0x10], 1, E2M1), "Corrupt"),
    "too short": (part([127, 0], 3, E2M1), "Truncated"),
    "too long": (part([127, 0, 0], 2, E2M1), "Corrupt"),
}
