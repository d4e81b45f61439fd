"""int8, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded
from spec_hashes import require

LARGEST_STEP = 0x7C010203
HALF = 0x3F000000


def decode(coded: Coded) -> np.ndarray:
    """Multiply the codes -127 ... 127 with the step."""
    step = coded.scalars[0]
    require(step <= LARGEST_STEP, "Corrupt", "the step is negative or beyond the largest")
    codes = np.frombuffer(coded.chunk, "i1")
    require(not (codes == -128).any(), "Corrupt", "a code of -128")
    require(step != 0 or not codes.any(), "Corrupt", "a code where the step is 0")
    return codes.astype("<f4") * coded.number()


CODEC = Codec("int8", 7, decode, chunk_elements=65536, scalars=1, width=1)

GOOD = {
    "two's complement": (Coded([bytes([127, 129, 255, 0])], 4, (HALF, 0)), [63.5, -63.5, -0.5, 0]),
    "a step of 0": (Coded([bytes(2)], 2), [0, 0]),
    "the largest step": (Coded([b"\x01"], 1, (LARGEST_STEP, 0)), [2.6793884e36]),
}
REFUSED = {
    "-128": (Coded([bytes([0, 128])], 2, (HALF, 0)), "Corrupt"),
    "a code without a step": (Coded([bytes([0, 1])], 2), "Corrupt"),
    "too short": (Coded([bytes(4)], 5, (HALF, 0)), "Truncated"),
    "too long": (Coded([bytes(6)], 5, (HALF, 0)), "Corrupt"),
} | {
    f"a step of {step:#x}": (Coded([b"\x01"], 1, (step, 0)), "Corrupt")
    for step in (LARGEST_STEP + 1, 0x7F800000, 0x7FC00000, 0x80000000, 0xBF800000)
}
