"""The decoder of fastsgd that was written from its spec.md, on chunks made by hand."""

import struct

import numpy as np
import pytest
from spec_fastsgd import check_sum, fastsgd_decoder
from spec_hashes import DecodeError

EIGHT = struct.unpack("<I", struct.pack("<f", 8.0))[0]
FIGURE = [3, 0, 0x01, 0x08, 8, 87, 1, 0, 0, 0x1C, 0x9F, 0x23]  # the example of spec.md

GOOD = {
    "nothing": ([0, 0], {}),
    "the example": (FIGURE, {343: 4.0, 575: -2.0, 578: 2.0}),
    "one value": ([1, 0, 0, 0, 0, 9, 0, 0, 0, 1], {9: -8.0}),
    "neighbours": ([3, 0, 2, 0, 0, 4, 0, 0, 0, 0b010], {4: 2.0, 5: -2.0, 6: 2.0}),
}

REFUSED = {
    "short count": ([3], "Truncated"),
    "short head": (FIGURE[:8], "Truncated"),
    "no values": (FIGURE[:9], "Truncated"),
    "short gaps": (FIGURE[:11], "Truncated"),
    "a byte more": ([*FIGURE, 0], "Corrupt"),
    "bytes after nothing": ([0, 0, 0], "Corrupt"),
    "too many pairs": ([1, 64, *FIGURE[2:]], "Corrupt"),
    "12 code bits": ([3, 0, 0x01, 0x60, *FIGURE[4:]], "Corrupt"),
    "33 key bits": ([*FIGURE[:4], 33, *FIGURE[5:]], "Corrupt"),
    "a code beyond tau": ([1, 0, 21, 0, 0, 9, 0, 0, 0, 1], "Corrupt"),
    "no code at the base": ([*FIGURE[:9], 0b111101, 0x9F, 0x23], "Corrupt"),
    "a code bit too many": ([*FIGURE[:9], 0b000000, 0x9F, 0x23], "Corrupt"),
    "a set pad after the values": ([*FIGURE[:9], 0x5C, 0x9F, 0x23], "Corrupt"),
    "a set pad after the gaps": ([*FIGURE[:11], 0x63], "Corrupt"),
    "a longer flag": ([*FIGURE[:11], 0x27, 0x00], "Corrupt"),
    "key bits too many": ([*FIGURE[:10], 0b10001000], "Corrupt"),
    "a key outside": ([1, 0, 1, 0, 0, 232, 3, 0, 0, 0], "Corrupt"),
}


@pytest.mark.parametrize("name", GOOD)
def test_handmade(name: str) -> None:
    """Chunks whose values follow from the document by hand."""
    chunk, values = GOOD[name]
    expected = np.zeros(1000, "<f4")
    for key, value in values.items():
        expected[key] = value
    decoded = fastsgd_decoder("2", "20", 2)([bytes(chunk)], 1000, EIGHT)
    assert decoded.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    """Chunks that break a rule."""
    chunk, kind = REFUSED[name]
    with pytest.raises(DecodeError) as caught:
        fastsgd_decoder("2", "20", 2)([bytes(chunk)], 1000, EIGHT)
    assert caught.value.kind == kind


def test_refused_sums() -> None:
    """A sum must be finite, at least 0 and not -0; without one no code has a value."""
    for scalar in (0x80000000, 0xC1000000, 0x7F800000, 0x7FC00000):
        with pytest.raises(DecodeError):
            check_sum(scalar)
    for scalar in (0, 1, 0x7F7FFFFF):
        check_sum(scalar)
    with pytest.raises(DecodeError):
        fastsgd_decoder("2", "20", 2)([bytes(FIGURE)], 1000, 0)
