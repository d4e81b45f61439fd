"""qsgd, decoded as its spec.md says."""

import re
from collections.abc import Callable

import numpy as np
from spec_bits import BitReader
from spec_codec import Codec, Coded, one_of
from spec_hashes import require

CHUNK_ELEMENTS = 65536
INFINITY = 0x7F800000
NUMBER_BITS = 17  # of the largest number that a code stands for
LARGEST_LEVELS = 65535
BUCKETS = {str(1 << power) for power in range(6, 17)}


def levels_text(text: str) -> None:
    """Check the parameter `levels`: a whole number without leading zeros."""
    whole = re.fullmatch(r"[0-9]+", text) is not None
    require(whole, "Corrupt", f"levels={text} is no whole number")
    require(1 <= int(text) <= LARGEST_LEVELS, "Corrupt", f"levels={text} is out of range")
    require(text == str(int(text)), "Corrupt", f"levels={text} has leading zeros")


def bucket_text(text: str) -> None:
    """Check the parameter `bucket`: a power of two."""
    require(text in BUCKETS, "Corrupt", f"bucket={text}: no power of two, 64 to 65,536")


def binary(stream: BitReader, bits: int) -> int:
    """Take a number whose highest bit, 1, is taken already and of which so many bits follow."""
    value = 1
    for _ in range(bits):
        value = value << 1 | stream.bit()
    return value


def gamma(stream: BitReader) -> int:
    """Take a number after as many zeros as bits follow its first."""
    zeros = 0
    while not stream.bit():
        zeros += 1
        require(zeros < NUMBER_BITS, "Corrupt", "a number of 2^17 or more")
    return binary(stream, zeros)


def omega(stream: BitReader) -> int:
    """Take a number: each group says how many bits the next has after its first; a 0 ends them."""
    value = 1
    while stream.bit():
        require(value < NUMBER_BITS, "Corrupt", "a number of 2^17 or more")
        value = binary(stream, value)
    return value


def bucket_levels(
    stream: BitReader, size: int, levels: int, code: Callable[[BitReader], int]
) -> np.ndarray:
    """Take the levels of a bucket, with their signs; 0 where the stream has none."""
    found = np.zeros(size, "<f8")
    position = 0  # the elements count from 1
    while position < size:
        position += code(stream)
        require(position <= size + 1, "Corrupt", "a gap past the bucket's end")
        if position <= size:
            negative = stream.bit()
            level = code(stream)
            require(level <= levels, "Corrupt", "a level above the last")
            found[position - 1] = -level if negative else level
    return found


def decode(coded: Coded) -> np.ndarray:
    """Multiply the levels of each bucket with its norm."""
    levels = int(coded.parameters["levels"])
    bucket = int(coded.parameters["bucket"])
    code = omega if coded.parameters["coding"] == "omega" else gamma
    starts = range(0, coded.count, bucket)
    head = 4 * len(starts)
    require(len(coded.chunk) >= head, "Truncated", "the chunk ends inside its norms")
    norms = np.frombuffer(coded.chunk[:head], "<u4")
    require(not (norms >= INFINITY).any(), "Corrupt", "a norm is negative or not finite")
    stream = BitReader(coded.chunk[head:])
    values = np.zeros(coded.count, "<f4")
    for start, norm in zip(starts, norms.view("<f4").astype("<f8"), strict=True):
        if norm == 0:
            continue
        end = min(start + bucket, coded.count)
        found = bucket_levels(stream, end - start, levels, code)
        values[start:end] = norm * found / levels
    stream.finish()
    return values


CODEC = Codec(
    "qsgd",
    11,
    decode,
    chunk_elements=CHUNK_ELEMENTS,
    parameters={
        "levels": levels_text,
        "norm": one_of("l2", "max"),
        "bucket": bucket_text,
        "coding": one_of("gamma", "omega"),
    },
)


# The parts below are made by hand: bits are written in the order of the stream.


def bits(text: str) -> bytes:
    """Write bits, 0 or 1 each, and zeros that fill the last byte."""
    found = np.array(list(text.replace(" ", "")), "U1").astype("u1")
    return np.packbits(found, bitorder="little").tobytes()


def bare(data: bytes, count: int, **parameters: str) -> Coded:
    """Make a part of one chunk of any bytes, in buckets of 64 with 4 levels."""
    usual = {"levels": "4", "norm": "max", "bucket": "64", "coding": "gamma"}
    return Coded([data], count, parameters=usual | parameters)


def part(norms: list[float], stream: str, count: int, **parameters: str) -> Coded:
    """Make a part of one chunk of these norms and bits."""
    return bare(np.array(norms, "<f4").tobytes() + bits(stream), count, **parameters)


def norm_bits(norm: int) -> Coded:
    """Make a part of one element with a norm of these bits, and of level 4."""
    return bare(norm.to_bytes(4, "little") + bits("1 0 00100"), 1)


OMEGA = {"coding": "omega"}
MANY = {"levels": "65535"}
LONG = {"bucket": "65536"}
GOOD = {
    "levels 4, -1, none": (part([2], "1 0 00100 1 1 1 011", 4), [2, -0.5, 0, 0]),
    "the last element sent": (part([2], "011 1 011", 3), [0, 0, -1.5]),
    "no level above 0": (part([2], "011", 2), [0, 0]),
    "a norm of 0": (part([0], "", 3), [0, 0, 0]),
    "omega": (part([2], "100 0 101000 110 1 100 100", 6, **OMEGA), [0, 2, 0, 0, -1, 0]),
    "omega: level 65,535": (part([1], f"0 0 11 1111 {'1' * 16} 0", 1, **OMEGA, **MANY), [1]),
    "gamma: level 65,535": (part([1], f"1 0 {'0' * 15} {'1' * 16}", 1, **MANY), [1]),
    "omega: a gap of 65,537": (
        part([1], f"10 100 10000 1{'0' * 15}1 0", 65536, **OMEGA, **LONG),
        [0] * 65536,
    ),
    "gamma: a gap of 65,537": (part([1], f"{'0' * 16} 1{'0' * 15}1", 65536, **LONG), [0] * 65536),
    "buckets of 64, the second 0": (
        part([4, 0, 8], "0000001000000 1 1 1 1 1 010", 130),
        [0] * 63 + [-1] + [0] * 64 + [-2, 0],
    ),
    "no gap behind a bucket's last element": (
        part([4, 8], "0000001000000 1 1 1 0 011", 65),
        [0] * 63 + [-1, 6],
    ),
    "a third": (part([1], "1 0 1", 1, levels="3"), [1 / 3]),
    "the largest norm": (norm_bits(INFINITY - 1), [3.4028234663852886e38]),
    "the smallest norm": (norm_bits(1), [2.0**-149]),
    "rounded to -0": (bare(b"\x01\0\0\0" + bits("1 1 1"), 1), [-0.0]),
}
REFUSED = {
    "too short for a norm": (bare(bytes(3), 1), "Truncated"),
    "too short for two norms": (bare(bytes(4), 65), "Truncated"),
    "no stream": (part([2], "", 1), "Truncated"),
    "an end inside zeros": (part([2], "1 0 000000", 1), "Truncated"),
    "an end inside a number": (part([2], "1 0 0000 11", 1, levels="31"), "Truncated"),
    "an end before a sign": (part([2], "1 0 1 00100", 5), "Truncated"),
    "an end before the closing gap": (part([2], "1 0 1 1 0 011", 3), "Truncated"),
    "an end inside a group": (part([2], "10 111 111", 64, **OMEGA), "Truncated"),
    "17 zeros": (part([2], "0" * 17, 1), "Corrupt"),
    "17 zeros in a level": (part([2], "1 0" + "0" * 17, 1, **MANY), "Corrupt"),
    "a group after 17": (part([2], "10 100 10001 1", 1, **OMEGA), "Corrupt"),
    "a gap past the end": (part([2], "00101", 3), "Corrupt"),
    "a later gap past the end": (part([2], "010 0 1 011", 3), "Corrupt"),
    "a level above s": (part([2], "1 0 00101", 1), "Corrupt"),
    "a set pad bit": (part([2], "1 0 00100 1", 1), "Corrupt"),
    "a whole byte behind": (part([2], "1 0 00100 0 00000000", 1), "Corrupt"),
    "a stream behind norms of 0": (part([0], "0", 1), "Corrupt"),
} | {
    f"a norm of {norm:#x}": (norm_bits(norm), "Corrupt")
    for norm in (INFINITY, 0x7FC00000, 0x80000000, 0xBF800000, 0xFFFFFFFF)
}
