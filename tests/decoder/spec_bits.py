"""Bit streams, as the codecs' documents number their bits."""

import numpy as np
from spec_hashes import require

UNARY_LIMIT = 24


class BitReader:
    """Reads a bit stream from the least significant bit on."""

    def __init__(self, data: bytes) -> None:
        """Begin at bit 0."""
        bits = np.unpackbits(np.frombuffer(data, "u1"), bitorder="little")
        self._bits = (bits + ord("0")).tobytes().decode()
        self._at = 0

    def bit(self) -> int:
        """Take one bit."""
        require(self._at < len(self._bits), "Truncated", "the stream ends inside a code")
        self._at += 1
        return int(self._bits[self._at - 1])

    def number(self, bits: int) -> int:
        """Take a number, least significant bit first."""
        first, self._at = self._at, self._at + bits
        require(self._at <= len(self._bits), "Truncated", "the stream ends inside a code")
        return int(self._bits[first : self._at][::-1] or "0", 2)

    def rice(self, parameter: int, escape_bits: int) -> int:
        """Take a Rice code: ones, a zero, the low bits; after 24 ones the number itself."""
        ones = 0
        while ones < UNARY_LIMIT and self.bit():
            ones += 1
        if ones < UNARY_LIMIT:
            return (ones << parameter) | self.number(parameter)
        gap = self.number(escape_bits)
        escaped = gap >> parameter >= UNARY_LIMIT
        require(escaped, "Corrupt", "an escape for a gap that has a code")
        return gap

    def finish(self) -> None:
        """Check that only zero bits remain, and less than a byte of them."""
        rest = self._bits[self._at :]
        require(len(rest) < 8, "Corrupt", "a whole byte after the last code")
        require("1" not in rest, "Corrupt", "a set bit after the last code")
