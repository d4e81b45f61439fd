"""The codecs fp32, bf16, int8 and 3lc as their documents say, by chunks; the list of codecs."""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from spec_bits import BitReader
from spec_fastsgd import check_sum, fastsgd_decoder
from spec_gcomp import decode_gcomp
from spec_hashes import DecodeError, require
from spec_randomk import check_seed, randomk_decoder
from spec_sbc import check_mean, decode_sbc

ROW = 320
ZERO_BYTE = 121  # five digits of value 0
LAST_DIGITS = 242
LONG_RUN = 255
RICE_LIMIT = 24
INT8_LARGEST_STEP = 0x7C010203


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


def check_int8_step(scalar: int) -> None:
    """Check that the step is at least 0, not -0, and that 127 of it are finite."""
    require(scalar <= INT8_LARGEST_STEP, "Corrupt", "the step is negative or beyond the largest")


def decode_int8(chunk: bytes, _n: int, scalar: int) -> np.ndarray:
    """Multiply the codes -127 ... 127 with the step."""
    codes = np.frombuffer(chunk, "i1")
    require(not (codes == -128).any(), "Corrupt", "a code of -128")
    require(scalar != 0 or not codes.any(), "Corrupt", "a code where the step is 0")
    return codes.astype("<f4") * np.frombuffer(struct.pack("<I", scalar), "<f4")[0]


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
    """What a frame needs to know about a codec; `width` is 0 where chunks vary in size.

    Chunks of a codec with 0 `chunk_elements` follow the data: `decode_part` gets all of them.
    """

    codec_id: int
    chunk_elements: int
    width: int
    check_scalar: Callable[[int], None]
    decode: Callable[[bytes, int, int], np.ndarray] | None
    decode_part: Callable[[list[bytes], int, int], np.ndarray] | None = None


FP32 = Codec(1, 65536, 4, check_no_scalar, decode_fp32)
BF16 = Codec(2, 65536, 2, check_no_scalar, decode_bf16)
THREELC = Codec(3, 40960, 0, check_3lc_scalar, decode_3lc)
SBC = Codec(4, 0, 0, check_mean, None, decode_sbc)
INT8 = Codec(7, 65536, 1, check_int8_step, decode_int8)
GCOMP = Codec(5, 262144, 0, check_no_scalar, decode_gcomp)
FASTSGD_SPEC = (
    rb"fastsgd:b=([0-9.]+),tau=(auto|[1-9][0-9]{0,3}),keep=([0-9.]+),l=([1-5]),residual=(on|off)"
)


def codec_of_spec(spec: bytes) -> Codec:
    """Find the codec of a canonical spec string; anything else is refused."""
    if spec == b"fp32":
        return FP32
    if spec == b"bf16":
        return BF16
    if spec == b"int8":
        return INT8
    if found := re.fullmatch(rb"3lc:s=([0-9.]+),mode=(?:auto|paper),runs=(?:on|off)", spec):
        check_number(found[1].decode(), 1, 2)
        return THREELC
    if found := re.fullmatch(rb"sbc:p=([0-9.]+)", spec):
        check_number(found[1].decode(), np.float32(0.000001), 1)
        return SBC
    if found := re.fullmatch(rb"randomk:k=([0-9.]+),unbiased=(?:on|off)", spec):
        check_number(found[1].decode(), np.float32(0.000001), 1)
        return Codec(8, 0, 0, check_seed, None, randomk_decoder(found[1].decode()))
    if re.fullmatch(rb"gcomp:cut=(?:auto|0|6|12|18),lossless=off|gcomp:cut=0,lossless=on", spec):
        return GCOMP
    if found := re.fullmatch(FASTSGD_SPEC, spec):
        b, tau, keep, flag_bits = (text.decode() for text in found.groups()[:4])
        check_number(b, np.float32(1.02), np.nextafter(np.float32(2), np.float32(3)))
        check_number(keep, np.float32(0.000001), 1)
        require(tau == "auto" or int(tau) <= 2047, "Corrupt", "tau out of its range")
        return Codec(6, 0, 0, check_sum, None, fastsgd_decoder(b, tau, int(flag_bits)))
    raise DecodeError("Corrupt", f"not a canonical codec spec: {spec!r}")


def check_number(text: str, least: float, below: float) -> None:
    """Check that a parameter is in its range and in its shortest form."""
    require(re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) is not None, "Corrupt", f"{text}: no number")
    value = np.float32(text)
    require(bool(least <= value < below), "Corrupt", f"{text} is out of its range")
    shortest = np.format_float_positional(value, unique=True, trim="-")
    require(text == shortest, "Corrupt", f"{text} is not in its shortest form")
