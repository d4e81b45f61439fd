"""onebit, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded, one_of
from spec_hashes import require

INFINITY = 0x7F800000
SIGN = 1 << 31
CHUNK = 65536
LEAST_ROWS = 64


def check_means(high: int, low: int) -> None:
    """Refuse what is no mean."""
    require(high < INFINITY, "Corrupt", "the mean of what isn't negative")
    require(low == 0 or SIGN < low < SIGN + INFINITY, "Corrupt", "the mean of what is negative")


def read_bits(chunk: bytes, count: int) -> np.ndarray:
    """Take a bit for each element."""
    size = -(-count // 8)
    require(len(chunk) >= size, "Truncated", "fewer bits than elements")
    require(len(chunk) <= size, "Corrupt", "more bytes than the elements need")
    bits = np.unpackbits(np.frombuffer(chunk, "u1"), bitorder="little")
    require(not bits[count:].any(), "Corrupt", "a set bit behind the last element")
    return bits[:count]


def decode(coded: Coded) -> np.ndarray:
    """Give each element the mean of its side."""
    check_means(*coded.scalars)
    bits = read_bits(coded.chunk, coded.count)
    require(coded.scalars[1] != 0 or not bits.any(), "Corrupt", "a negative element without a mean")
    return np.where(bits == 1, coded.number(1), coded.number(0))


def decode_columns(coded: Coded) -> np.ndarray:
    """Give each element the mean of its side of its column."""
    count = coded.count
    if count == 0:
        return np.empty(0, "<f4")
    require(len(coded.chunks) == 1 + -(-count // CHUNK), "Corrupt", "another number of chunks")
    head, *chunks = coded.chunks
    require(len(head) >= 4, "Truncated", "no number of columns")
    columns = int.from_bytes(head[:4], "little")
    fits = 0 < columns <= max(1, count // LEAST_ROWS) and count % columns == 0
    require(fits, "Corrupt", f"{columns} columns of {count} elements")
    require(len(head) >= 4 + 8 * columns, "Truncated", "fewer means than columns")
    require(len(head) <= 4 + 8 * columns, "Corrupt", "more bytes than the means need")
    words = np.frombuffer(head[4:], "<u4").reshape(columns, 2)
    bits = [
        read_bits(chunk, min(CHUNK, count - CHUNK * number)) for number, chunk in enumerate(chunks)
    ]
    for high, low in words.tolist():
        check_means(high, low)
    negative = np.concatenate(bits).reshape(-1, columns) == 1
    missing = negative & (words[:, 1] == 0)
    require(not missing.any(), "Corrupt", "a negative element without a mean")
    means = words.view("<f4")
    return np.where(negative, means[:, 1], means[:, 0]).reshape(-1)


COLUMNS = Codec("onebit", 9, decode_columns)
CODEC = Codec(
    "onebit",
    9,
    decode,
    chunk_elements=CHUNK,
    scalars=2,
    parameters={"means": one_of("part", "column")},
    later={"means": "part"},
    variant=lambda given: COLUMNS if given.get("means") == "column" else None,
)
