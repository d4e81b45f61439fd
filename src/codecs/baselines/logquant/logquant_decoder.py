"""logquant, decoded as its spec.md says, all chunks of a part together."""

import struct

import numpy as np
from spec_bits import BitReader
from spec_codec import Codec, Coded, one_of
from spec_hashes import require

FULL_CHUNK = 16384
BIAS = 299
ROOT = struct.unpack("<d", struct.pack("<Q", 0x3FF6A09E667F3BCD))[0]
STEPS = {"2": (-149, 127), "sqrt2": (-298, 255)}


def step_value(step: int, base: str) -> np.float32:
    """Give what a number of steps stands for."""
    if base == "2":
        return np.float32(2.0**step)
    whole, half = divmod(step, 2)
    return np.float32((ROOT if half else 1.0) * 2.0**whole)


def level_values(coded: Coded) -> dict[int, np.float32]:
    """Give what the allowed levels stand for."""
    base, levels = coded.parameters["base"], 2 ** int(coded.parameters["bits"]) - 1
    least, most = STEPS[base]
    top = coded.scalars[0] - BIAS
    require(least <= top <= most, "Corrupt", f"a top of {top}")
    return {
        level: step_value(top - levels + level, base)
        for level in range(1, levels + 1)
        if top - levels + level >= least
    }


def decode(coded: Coded) -> np.ndarray:
    """Decode the pairs of all chunks."""
    require(coded.count < 2**32, "Corrupt", "2^32 elements")
    bits = int(coded.parameters["bits"])
    chunks = [read_chunk(chunk, bits) for chunk in coded.chunks]
    for i, pairs in enumerate(chunks):
        is_last = i == len(chunks) - 1
        require(is_last or len(pairs) == FULL_CHUNK, "Corrupt", "a short chunk before the last")
        require(len(pairs) > 0 or i == 0, "Corrupt", "an empty chunk among others")
    every = [pair for pairs in chunks for pair in pairs]
    require((coded.scalars[0] == 0) == (not every), "Corrupt", "a top without pairs, or none")
    values = np.zeros(coded.count, "<f4")
    if not every:
        return values
    allowed = level_values(coded)
    least = 0
    for key, number in every:
        level, negative = number % 2**bits, number >> bits
        require(least <= key < coded.count, "Corrupt", f"key {key}")
        require(level in allowed, "Corrupt", f"level {level}")
        values[key] = -allowed[level] if negative else allowed[level]
        least = key + 1
    return values


def is_dense_shorter(pairs: int, elements: int, bits: int) -> bool:
    """Whether zeros cost no more than keys."""
    keyed = 4 * pairs + -(-pairs * (bits + 1) // 8)
    return 8 + -(-elements * (bits + 1) // 8) <= keyed


def read_chunk(chunk: bytes, bits: int) -> list[tuple[int, int]]:
    """Read the keys and numbers of a chunk."""
    require(len(chunk) >= 2, "Truncated", "the end inside the count")
    (word,) = struct.unpack_from("<H", chunk)
    pairs, dense = word & 0x7FFF, word >> 15
    require(pairs <= FULL_CHUNK, "Corrupt", f"{pairs} pairs")
    if pairs == 0:
        require(not dense and len(chunk) == 2, "Corrupt", "more than nothing")
        return []
    begin = 10 if dense else 2 + 4 * pairs
    require(len(chunk) >= begin, "Truncated", "the end inside the keys")
    if dense:
        first, elements = struct.unpack_from("<II", chunk, 2)
        require(elements >= pairs, "Corrupt", "fewer elements than pairs")
        require(is_dense_shorter(pairs, elements, bits), "Corrupt", "keys are shorter")
        keys = range(first, first + elements)
    else:
        keys = struct.unpack_from(f"<{pairs}I", chunk, 2)
    size = -(-len(keys) * (bits + 1) // 8)
    require(begin + size <= len(chunk), "Truncated", "the end inside the numbers")
    require(begin + size == len(chunk), "Corrupt", "bytes after the numbers")
    stream = BitReader(chunk[begin:])
    numbers = [stream.number(bits + 1) for _ in keys]
    stream.finish()
    found = list(zip(keys, numbers, strict=True))
    if dense:
        require(numbers[0] != 0 and numbers[-1] != 0, "Corrupt", "a zero at an end")
        found = [pair for pair in found if pair[1] != 0]
        require(len(found) == pairs, "Corrupt", "another number of non-zeros")
    else:
        shorter = is_dense_shorter(pairs, keys[-1] - keys[0] + 1, bits)
        require(not shorter, "Corrupt", "zeros are shorter")
    return found


CODEC = Codec(
    "logquant",
    23,
    decode,
    scalars=1,
    parameters={"bits": one_of(*"12345678"), "base": one_of("2", "sqrt2")},
)

EXAMPLE = [3, 0x80, 0, 0, 0, 0, 4, 0, 0, 0, 0xEC, 0x03, 0x06]  # of spec.md
KEYED = [2, 0, 9, 0, 0, 0, 200, 3, 0, 0, 0x4F, 0x03]  # keys 9 and 968, levels 15 and 10 with sign


def of(chunk: list[int], step: int = 3, **parameters: str) -> Coded:
    """Make a part of one chunk."""
    given = {"bits": "4", "base": "2", **parameters}
    return Coded([bytes(chunk)], 1000, (step + BIAS, 0), given)


def at(values: dict[int, float]) -> list[float]:
    """Give the values of a part that has these."""
    return [values.get(i, 0.0) for i in range(1000)]


ROOT_OF_HALF = float(np.float32(2**-0.5))
GOOD = {
    "nothing": (of([0, 0], -BIAS), at({})),
    "the example": (of(EXAMPLE), at({0: 1.0, 1: -8.0, 3: 1.0})),
    "keys": (of(KEYED), at({9: 8.0, 968: -0.25})),
    "roots": (of(KEYED, 0, base="sqrt2"), at({9: 1.0, 968: -float(np.float32(2**-2.5))})),
    "a root at the top": (of([1, 0, 9, 0, 0, 0, 15], -1, base="sqrt2"), at({9: ROOT_OF_HALF})),
    "the smallest": (of([1, 0, 9, 0, 0, 0, 15], -149), at({9: 2.0**-149})),
}
REFUSED = {
    "a short count": (of([3]), "Truncated"),
    "short keys": (of(KEYED[:9]), "Truncated"),
    "short numbers": (of(KEYED[:11]), "Truncated"),
    "a short dense head": (of(EXAMPLE[:9]), "Truncated"),
    "short dense numbers": (of(EXAMPLE[:12]), "Truncated"),
    "a byte more": (of([*KEYED, 0]), "Corrupt"),
    "a dense byte more": (of([*EXAMPLE, 0]), "Corrupt"),
    "bytes after nothing": (of([0, 0, 0], -BIAS), "Corrupt"),
    "dense nothing": (of([0, 0x80], -BIAS), "Corrupt"),
    "too many pairs": (of([1, 64, *KEYED[2:]]), "Corrupt"),
    "a set pad": (of([*KEYED[:11], 0x07]), "Corrupt"),
    "keys that don't grow": (of([*KEYED[:6], 9, 0, *KEYED[8:]]), "Corrupt"),
    "a key outside": (of([*KEYED[:6], 232, *KEYED[7:]]), "Corrupt"),
    "a dense key outside": (of([*EXAMPLE[:2], 229, 3, *EXAMPLE[4:]]), "Corrupt"),
    "a zero among keys": (of([*KEYED[:10], 0x40, 0x03]), "Corrupt"),
    "a negative zero": (of([*EXAMPLE[:11], 0x43, 0x06]), "Corrupt"),
    "a dense zero first": (of([*EXAMPLE[:10], 0xE0, 0x33, 0x06]), "Corrupt"),
    "a dense zero last": (of([*EXAMPLE[:11], 0x33, 0]), "Corrupt"),
    "a non-zero too many": (of([*EXAMPLE[:11], 0x33, 0x06]), "Corrupt"),
    "a non-zero too few": (of([4, *EXAMPLE[1:]]), "Corrupt"),
    "fewer elements than pairs": (of([*EXAMPLE[:6], 2, *EXAMPLE[7:]]), "Corrupt"),
    "keys where zeros are shorter": (
        of([3, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0xEF, 0x3D]),
        "Corrupt",
    ),
    "zeros where a key is shorter": (of([1, 0x80, 9, 0, 0, 0, 1, 0, 0, 0, 15]), "Corrupt"),
    "a level below all": (of([1, 0, 9, 0, 0, 0, 14], -149), "Corrupt"),
    "a top without pairs": (of([0, 0]), "Corrupt"),
    "pairs without a top": (of(KEYED, -BIAS), "Corrupt"),
    "a top beyond 2^127": (of(KEYED, 128), "Corrupt"),
    "a top below 2^-149": (of(KEYED, -150), "Corrupt"),
    "a root beyond float32": (of(KEYED, 256, base="sqrt2"), "Corrupt"),
}
