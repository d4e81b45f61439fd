"""The decoder of sbc that was written from its spec.md, on chunks made by hand."""

import struct

import numpy as np
import pytest
from spec_hashes import DecodeError
from spec_sbc import check_mean, decode_sbc

MEAN = struct.unpack("<I", struct.pack("<f", -3.0))[0]
LANES = [64, 6, 0, 0, 0, 0, 0]

GOOD = {
    "nothing": ([0, 0, 0], 5, 0, []),
    "one position": ([0, 1, 0, 4, 0, 0, 0], 5, MEAN, [4]),
    "a gap of 3 with b = 1": ([1, 2, 0, 1, 0, 0, 0, 0b101], 8, MEAN, [1, 5]),
    "two gaps": ([1, 3, 0, 0, 0, 0, 0, 0b001011], 8, MEAN, [0, 6, 7]),
    "escape": ([0, 2, 0, 0, 0, 0, 0, 255, 255, 255, 24, 0, 0, 0], 26, MEAN, [0, 25]),
    "four lanes": ([*LANES, 1, 0, 1, 0, 1, 0, 0b01, 0, 0, 0], 7, MEAN, [0, 2, 3, 4, 5, 6]),
}


@pytest.mark.parametrize("name", GOOD)
def test_handmade(name: str) -> None:
    """Chunks whose positions follow from the document by hand."""
    chunk, count, scalar, positions = GOOD[name]
    expected = np.zeros(count, "<f4")
    expected[positions] = -3.0
    assert decode_sbc([bytes(chunk)], count, scalar).tobytes() == expected.tobytes()


REFUSED = {
    "a mean of nothing": ([0, 0, 0], 5, MEAN, "Corrupt"),
    "positions without a mean": ([0, 1, 0, 4, 0, 0, 0], 5, 0, "Corrupt"),
    "beyond the part": ([0, 1, 0, 5, 0, 0, 0], 5, MEAN, "Corrupt"),
    "short head": ([0, 1, 0, 4, 0, 0], 5, MEAN, "Truncated"),
    "bytes after nothing": ([0, 0, 0, 0], 5, 0, "Corrupt"),
    "b without gaps": ([1, 1, 0, 4, 0, 0, 0], 5, MEAN, "Corrupt"),
    "b of 25": ([25, 2, 0, 0, 0, 0, 0, 2, 0, 0, 0], 5, MEAN, "Corrupt"),
    "two lanes": ([32, 2, 0, 0, 0, 0, 0, 1, 0, 0], 5, MEAN, "Corrupt"),
    "no stream": ([0, 2, 0, 0, 0, 0, 0], 5, MEAN, "Truncated"),
    "a set pad": ([0, 2, 0, 0, 0, 0, 0, 0b100], 5, MEAN, "Corrupt"),
    "a byte more": ([0, 2, 0, 0, 0, 0, 0, 0, 0], 5, MEAN, "Corrupt"),
    "short escape": ([0, 2, 0, 0, 0, 0, 0, *[255] * 3, 23, 0, 0, 0], 99, MEAN, "Corrupt"),
    "lane beyond the end": ([*LANES, 1, 0, 1, 0, 9, 0, 1, 0, 0, 0], 7, MEAN, "Truncated"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    """Chunks that break a rule."""
    chunk, count, scalar, kind = REFUSED[name]
    with pytest.raises(DecodeError) as caught:
        decode_sbc([bytes(chunk)], count, scalar)
    assert caught.value.kind == kind


def test_refused_means() -> None:
    """A mean must be finite and not -0."""
    for scalar in (0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000):
        with pytest.raises(DecodeError):
            check_mean(scalar)
    for scalar in (0, 1, 0x80000001, 0x7F7FFFFF, 0xFF7FFFFF):
        check_mean(scalar)
