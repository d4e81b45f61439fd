"""What `zstd` and `zlib` have in common: modes of a chunk, and bytes in planes."""

from collections.abc import Callable

import numpy as np
from spec_codec import Coded
from spec_hashes import require

LARGEST_CHUNK = 4 * 65536


def raw_bytes(coded: Coded, inflated: Callable[[bytes, int], bytes]) -> bytes:
    """Give the bytes of a chunk's values: stored, or by `inflated` of a stream and their number."""
    size, mode, rest = 4 * coded.count, coded.chunk[0], coded.chunk[1:]
    require(mode in (0, 1), "Corrupt", "the first byte names no mode")
    if mode == 0:
        require(len(rest) >= size, "Truncated", "fewer bytes than the values have")
        require(len(rest) <= size, "Corrupt", "more bytes than the values have")
        return rest
    require(rest != b"", "Truncated", "no compressed bytes")
    require(len(rest) < size, "Corrupt", "compressed bytes as many as the values have")
    return inflated(rest, size)


def values_of(raw: bytes, coded: Coded) -> np.ndarray:
    """Give the values of bytes that may lie in planes."""
    if coded.parameters["planes"] == "on":
        raw = np.frombuffer(raw, "u1").reshape(4, coded.count).T.tobytes()
    return np.frombuffer(raw, "<f4")
