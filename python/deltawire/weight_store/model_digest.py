"""The digest of a model: 64 bits over its tensors' names, dtypes, shapes and digests.

The core hashes the weights. What is left is a hundred bytes for each tensor, hashed here.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

_MASK = 0xFFFFFFFFFFFFFFFF
_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5


class TensorDigest(NamedTuple):
    """What a model's digest takes of a tensor.

    Attributes:
        dtype: as safetensors spells it, "BF16".
        shape: its dimensions.
        digest: `deltawire.patches.digest` of its weights.
    """

    dtype: str
    shape: tuple[int, ...]
    digest: int


def digest_of(tensors: Mapping[str, TensorDigest]) -> str:
    """The model's digest, 16 hexadecimal digits."""
    text = bytearray()
    for name in sorted(tensors, key=str.encode):
        dtype, shape, digest = tensors[name]
        for word in (name.encode(), dtype.encode()):
            text += struct.pack("<I", len(word)) + word
        text += struct.pack(f"<I{len(shape)}QQ", len(shape), *shape, digest)
    return f"{xxh64(bytes(text)):016x}"


def xxh64(data: bytes) -> int:
    """XXH64 with the seed 0."""
    whole = len(data) & ~31
    if whole:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        for words in struct.iter_unpack("<4Q", data[:whole]):
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
        state = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            state = ((state ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        state = _P5
    state = (state + len(data)) & _MASK
    words_end = whole + (len(data) - whole) // 8 * 8
    for (word,) in struct.iter_unpack("<Q", data[whole:words_end]):
        state = (_rotate(state ^ _round(0, word), 27) * _P1 + _P4) & _MASK
    rest = data[words_end:]
    if len(rest) >= 4:
        half = int.from_bytes(rest[:4], "little")
        state = (_rotate(state ^ (half * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        rest = rest[4:]
    for byte in rest:
        state = _rotate(state ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    state = (state ^ state >> 33) * _P2 & _MASK
    state = (state ^ state >> 29) * _P3 & _MASK
    return state ^ state >> 32


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK
