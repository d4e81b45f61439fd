"""truncate, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded, one_of
from spec_hashes import require


def decode(coded: Coded) -> np.ndarray:
    """Put zeros behind the kept bits of each value."""
    bits = int(coded.parameters["bits"])
    size = -(-coded.count * bits // 8)
    require(len(coded.chunk) >= size, "Truncated", "the chunk ends before its elements")
    require(len(coded.chunk) <= size, "Corrupt", "bytes behind the last element")
    stream = np.unpackbits(np.frombuffer(coded.chunk, "u1"), bitorder="little")
    require(not stream[coded.count * bits :].any(), "Corrupt", "a set bit behind the last element")
    kept = stream[: coded.count * bits].reshape(coded.count, bits).astype("<u4")
    places = np.arange(32 - bits, 32, dtype="<u4")
    return (kept << places).sum(axis=1, dtype="<u4").view("<f4")


CODEC = Codec(
    "truncate",
    20,
    decode,
    chunk_elements=65536,
    parameters={"bits": one_of(*(str(bits) for bits in range(10, 32)))},
)

OF_18, OF_14 = {"bits": "18"}, {"bits": "14"}
GOOD = {
    "18 bits": (Coded([bytes([0, 0xFE, 0, 2, 0x0C])], 2, parameters=OF_18), [1, -2.5]),
    "14 bits": (Coded([bytes([0xE1, 0x0F])], 1, parameters=OF_14), [1.03125]),
}
REFUSED = {
    "padding": (Coded([bytes([0, 0, 4])], 1, parameters=OF_18), "Corrupt"),
    "too short": (Coded([bytes(2)], 1, parameters=OF_18), "Truncated"),
    "too long": (Coded([bytes(4)], 1, parameters=OF_18), "Corrupt"),
    "a scalar": (Coded([bytes(3)], 1, (1, 0), OF_18), "Corrupt"),
}
