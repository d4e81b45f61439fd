"""Errors and checksums for the decoder written from the documents: CRC-32C and XXH64."""

import functools

KINDS = (
    *("Truncated", "Corrupt", "UnsupportedVersion", "Limit", "Mismatch", "Range"),
    "UnsupportedDType",
)

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_CRC_POLYNOMIAL = 0x82F63B78
_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5


class DecodeError(Exception):
    """The one way in which bytes are refused; `kind` is one of `KINDS`."""

    def __init__(self, kind: str, message: str) -> None:
        """Keep the kind with the text."""
        if kind not in KINDS:
            raise ValueError(f"no such kind of error: {kind}")
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


def require(condition: bool, kind: str, message: str) -> None:
    """Raise a `DecodeError` unless the condition holds."""
    if not condition:
        raise DecodeError(kind, message)


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_CRC_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_CRC_TABLE = _crc_table()


def crc32c(data: bytes, seed: int = 0) -> int:
    """CRC-32C of data, continued from the checksum `seed`."""
    table = _CRC_TABLE
    state = seed ^ _MASK32
    for byte in data:
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state ^ _MASK32


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK64


def _round(state: int, word: int) -> int:
    state = (state + word * _P2) & _MASK64
    return (_rotate(state, 31) * _P1) & _MASK64


def _stripes(data: bytes, seed: int) -> int:
    """Take all whole stripes of 32 bytes and merge the four lanes."""
    lanes = [(seed + _P1 + _P2) & _MASK64, (seed + _P2) & _MASK64, seed, (seed - _P1) & _MASK64]
    for start in range(0, len(data) - 31, 32):
        for lane in range(4):
            at = start + 8 * lane
            lanes[lane] = _round(lanes[lane], int.from_bytes(data[at : at + 8], "little"))
    state = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    state &= _MASK64
    for lane in lanes:
        state = ((state ^ _round(0, lane)) * _P1 + _P4) & _MASK64
    return state


@functools.cache  # of specs and layouts, which many files of a test have in common
def xxh64(data: bytes, seed: int = 0) -> int:
    state = _stripes(data, seed) if len(data) >= 32 else (seed + _P5) & _MASK64
    state = (state + len(data)) & _MASK64
    at = len(data) & ~31
    while at + 8 <= len(data):
        state ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        state = (_rotate(state, 27) * _P1 + _P4) & _MASK64
        at += 8
    if at + 4 <= len(data):
        state ^= (int.from_bytes(data[at : at + 4], "little") * _P1) & _MASK64
        state = (_rotate(state, 23) * _P2 + _P3) & _MASK64
        at += 4
    for byte in data[at:]:
        state ^= (byte * _P5) & _MASK64
        state = (_rotate(state, 11) * _P1) & _MASK64
    state = ((state ^ (state >> 33)) * _P2) & _MASK64
    state = ((state ^ (state >> 29)) * _P3) & _MASK64
    return state ^ (state >> 32)
