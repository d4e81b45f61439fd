"""The codecs fp32, bf16 and 3lc, decoded as their documents say, and the table of all codecs."""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from spec_gcomp import decode_gcomp
from spec_hashes import DecodeError, require

ROW = 320
ZERO_BYTE = 121  # five digits of value 0
LAST_DIGITS = 242
LONG_RUN = 255
RICE_LIMIT = 24


def check_wide_end(width: int, end: int, elements: int) -> None:
    """Check a chunk end of a codec that spends `width` bytes on every element."""
    require(end >= width * elements, "Truncated", "chunk end below its elements")
    require(end <= width * elements, "Corrupt", "chunk end beyond its elements")


def check_no_scalar(scalar: int) -> None:
    """Check the scalar of a codec that has none."""
    require(scalar == 0, "Corrupt", "scalar of a codec that has none")


def check_3lc_scalar(scalar: int) -> None:
    """Check that m is finite, at least 0 and not -0."""
    require(scalar < 0x7F800000, "Corrupt", "m is negative, infinite or NaN")


def decode_fp32(chunk: bytes, _n: int, _scalar: int) -> np.ndarray:
    """Give the chunk's float32 numbers, their bits as they are."""
    return np.frombuffer(chunk, "<f4")


def decode_bf16(chunk: bytes, _n: int, _scalar: int) -> np.ndarray:
    """Put 16 zero bits below each u16."""
    return (np.frombuffer(chunk, "<u2").astype("<u4") << 16).view("<f4")


def decode_3lc(chunk: bytes, n: int, scalar: int) -> np.ndarray:
    """Decode the digits of a chunk in its mode and multiply them with m."""
    mode, body = chunk[0], chunk[1:]
    require(mode <= 2, "Corrupt", f"unknown chunk mode {mode}")
    if mode == 2:
        digits = positions_digits(body, n)
    else:
        if mode == 1:
            body = expand_runs(body, -(-n // 5))
        digits = rows_digits(body, n)
    if scalar == 0:
        require(not digits.any(), "Corrupt", "a digit where m is 0")
    m = np.frombuffer(struct.pack("<I", scalar), "<f4")[0]
    return np.array([-m, 0, m], "<f4")[digits + 1]


def rows_digits(body: bytes, n: int) -> np.ndarray:
    """Decode mode 0: rows of 320 elements in base 3^5; digits -1, 0, +1."""
    size = -(-n // 5)
    require(len(body) >= size, "Truncated", "fewer bytes than the rows have")
    require(len(body) <= size, "Corrupt", "more bytes than the rows have")
    packed = np.frombuffer(body, "u1")
    require(int(packed.max()) <= LAST_DIGITS, "Corrupt", "a byte above 242")
    whole = n // ROW
    rows = [unpack_row(packed[64 * row : 64 * row + 64]) for row in range(whole)]
    rest = n - ROW * whole
    if rest:
        last = unpack_row(packed[64 * whole :])
        require(not last[rest:].any(), "Corrupt", "a pad digit other than 1")
        rows.append(last[:rest])
    return np.concatenate(rows)


def unpack_row(row: np.ndarray) -> np.ndarray:
    """Give five digits for each byte: digit p of byte j is element j + p * t."""
    wide = row.astype(np.int16)
    return np.concatenate([wide // weight % 3 for weight in (81, 27, 9, 3, 1)]) - 1


def expand_runs(body: bytes, size: int) -> bytes:
    """Undo the zero runs of mode 1; the result has `size` bytes."""
    out = bytearray()
    after_short = False
    for code in body:
        require(len(out) < size, "Corrupt", "bytes after the last row")
        zero_code = code == ZERO_BYTE or code > LAST_DIGITS
        require(
            not (zero_code and after_short), "Corrupt", "a zero run in more codes than it needs"
        )
        if code > LAST_DIGITS:
            out += bytes([ZERO_BYTE]) * (code - 241)
            require(len(out) <= size, "Corrupt", "a zero run past the last row")
        else:
            out.append(code)
        after_short = zero_code and code != LONG_RUN
    require(len(out) == size, "Truncated", "the chunk ends before its rows")
    return bytes(out)


class BitReader:
    """Reads a bit stream from the least significant bit on."""

    def __init__(self, data: bytes) -> None:
        """Begin at bit 0."""
        self._bits = np.unpackbits(np.frombuffer(data, "u1"), bitorder="little").tolist()
        self._at = 0

    def bit(self) -> int:
        """Take one bit."""
        require(self._at < len(self._bits), "Truncated", "the stream ends inside a code")
        self._at += 1
        return self._bits[self._at - 1]

    def number(self, bits: int) -> int:
        """Take a number, least significant bit first."""
        return sum(self.bit() << place for place in range(bits))

    def finish(self) -> None:
        """Check that only zero bits remain, and less than a byte of them."""
        rest = self._bits[self._at :]
        require(len(rest) < 8, "Corrupt", "a whole byte after the last sign")
        require(not any(rest), "Corrupt", "a set bit after the last sign")


def read_gap(stream: BitReader, k: int) -> int:
    """Read one Rice code or escape of mode 2."""
    ones = 0
    while ones < RICE_LIMIT and stream.bit():
        ones += 1
    if ones < RICE_LIMIT:
        return (ones << k) | stream.number(k)
    gap = stream.number(16)
    require(gap >> k >= RICE_LIMIT, "Corrupt", "an escape for a gap that has a code")
    return gap


def positions_digits(body: bytes, n: int) -> np.ndarray:
    """Decode mode 2: positions and signs of the digits that aren't 0."""
    require(len(body) >= 3, "Truncated", "mode 2 without its 3 bytes")
    k, nonzeros = struct.unpack_from("<BH", body)
    require(k <= 15, "Corrupt", f"Rice parameter {k}")
    require(nonzeros <= n, "Corrupt", "more digits than elements")
    digits = np.zeros(n, np.int16)
    stream = BitReader(body[3:])
    position = -1
    for _ in range(nonzeros):
        position += 1 + read_gap(stream, k)
        require(position < n, "Corrupt", "a position beyond the chunk")
        digits[position] = -1 if stream.bit() else 1
    stream.finish()
    return digits


@dataclass(frozen=True)
class Codec:
    """What a frame needs to know about a codec; `width` is 0 where chunks vary in size."""

    codec_id: int
    chunk_elements: int
    width: int
    check_scalar: Callable[[int], None]
    decode: Callable[[bytes, int, int], np.ndarray]


FP32 = Codec(1, 65536, 4, check_no_scalar, decode_fp32)
BF16 = Codec(2, 65536, 2, check_no_scalar, decode_bf16)
THREELC = Codec(3, 40960, 0, check_3lc_scalar, decode_3lc)
GCOMP = Codec(5, 262144, 0, check_no_scalar, decode_gcomp)


def codec_of_spec(spec: bytes) -> Codec:
    """Find the codec of a canonical spec string; anything else is refused."""
    if spec == b"fp32":
        return FP32
    if spec == b"bf16":
        return BF16
    if re.fullmatch(rb"gcomp:cut=(?:auto|0|6|12|18),lossless=off|gcomp:cut=0,lossless=on", spec):
        return GCOMP
    found = re.fullmatch(rb"3lc:s=(1(?:\.[0-9]+)?),mode=(?:auto|paper),runs=(?:on|off)", spec)
    if found is None:
        raise DecodeError("Corrupt", f"not a canonical codec spec: {spec!r}")
    text = found[1].decode()
    s = np.float32(text)
    require(bool(1 <= s < 2), "Corrupt", "s outside of 1 to 2")
    shortest = np.format_float_positional(s, unique=True, trim="-")
    require(text == shortest, "Corrupt", "s not in its shortest form")
    return THREELC
