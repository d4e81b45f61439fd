"""The codec randomk, decoded as its spec.md says, all chunks of a part together."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from spec_hashes import require

FULL_CHUNK = 16384
STEP = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def check_seed(_scalar: int) -> None:
    """Accept any seed."""


def mixed(z: int) -> int:
    """Scramble 64 bits (section 3)."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def places(seed: int, count: int, kept: int) -> list[int]:
    """Give the place of each value (section 2)."""
    key = mixed(seed + STEP & MASK)
    found = []
    for i in range(kept):
        begin, end = i * count // kept, (i + 1) * count // kept
        drawn = mixed(key + STEP * (i + 1) & MASK) >> 32
        found.append(begin + (drawn * (end - begin) >> 32))
    return found


def kept_of(k: str, count: int) -> int:
    """Give the number of elements that are sent of `count`."""
    share = Fraction(float(np.float32(k)))
    return min(count, max(1, math.floor(share * count + Fraction(1, 2))))


def randomk_decoder(k: str) -> Callable[[list[bytes], int, int], np.ndarray]:
    """Make the decoder of a part for a share k."""

    def decode(chunks: list[bytes], count: int, scalar: int) -> np.ndarray:
        kept = kept_of(k, count)
        require(len(chunks) == -(-kept // FULL_CHUNK), "Corrupt", "another number of chunks")
        end = 0
        for number, chunk in enumerate(chunks):
            end += len(chunk)
            due = 4 * min(kept, (number + 1) * FULL_CHUNK)
            require(end >= due, "Truncated", "chunk end below its values")
            require(end <= due, "Corrupt", "chunk end beyond its values")
        sent = np.frombuffer(b"".join(chunks), "<f4")
        require(bool(np.isfinite(sent).all()), "Corrupt", "a value that is not finite")
        values = np.zeros(count, "<f4")
        values[places(scalar, count, kept)] = sent + np.float32(0)  # -0 is not written
        return values

    return decode
