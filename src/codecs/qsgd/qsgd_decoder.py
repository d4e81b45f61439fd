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
