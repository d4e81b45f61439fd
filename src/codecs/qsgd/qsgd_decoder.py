"""qsgd, decoded as its spec.md says."""

import struct
from collections.abc import Callable

import numpy as np
from spec_bits import BitReader
from spec_codec import Codec, Coded, one_of
from spec_hashes import require

MOST = 16  # numbers are below 2^17


def gamma(bits: BitReader) -> int:
    """Take Elias' gamma code: zeros, and as many bits behind a 1."""
    zeros = 0
    while not bits.bit():
        zeros += 1
        if zeros > MOST:
            return 0
    return binary(bits, zeros)


def omega(bits: BitReader) -> int:
    """Take Elias' omega code: numbers that say how long the next one is, and a zero."""
    number = 1
    while bits.bit():
        if number > MOST:
            return 0
        number = binary(bits, number)
    return number


def binary(bits: BitReader, count: int) -> int:
    """Take `count` bits behind a 1, highest first."""
    number = 1
    for _ in range(count):
        number = 2 * number + bits.bit()
    return number


def decode(coded: Coded) -> np.ndarray:
    """Read the levels of each bucket, and multiply them with its norm."""
    levels, bucket = int(coded.parameters["levels"]), int(coded.parameters["bucket"])
    head = 4 * -(-coded.count // bucket)
    require(len(coded.chunk) >= head, "Truncated", "fewer bytes than the norms need")
    norms = np.frombuffer(coded.chunk[:head], "<f4")
    require(bool((norms.view("<u4") < 0x7F800000).all()), "Corrupt", "a norm")
    bits = BitReader(coded.chunk[head:])
    take = gamma if coded.parameters["coding"] == "gamma" else omega
    values = np.zeros(coded.count)
    for number, norm in enumerate(norms):
        part = values[number * bucket : (number + 1) * bucket]
        if norm != 0:
            read_bucket(bits, part, levels, take)
            part[:] = np.float64(norm) * part / levels
    bits.finish()
    return values.astype("<f4")


def read_bucket(
    bits: BitReader, part: np.ndarray, levels: int, take: Callable[[BitReader], int]
) -> None:
    """Read the levels of a bucket, with their signs."""
    next_one = 0
    while next_one < len(part):
        gap = take(bits)
        require(0 < gap <= len(part) + 1 - next_one, "Corrupt", "a position outside its bucket")
        next_one += gap
        if next_one > len(part):
            break
        sign = -1 if bits.bit() else 1
        level = take(bits)
        require(0 < level <= levels, "Corrupt", "a level above the highest")
        part[next_one - 1] = sign * level


def whole(text: str) -> None:
    """Check the number of levels."""
    right = (
        text.isascii() and text.isdigit() and text == str(int(text)) and 1 <= int(text) < 1 << 16
    )
    require(right, "Corrupt", f"{text}: no number of levels")


CODEC = Codec(
    "qsgd",
    11,
    decode,
    chunk_elements=65536,
    parameters={
        "levels": whole,
        "norm": one_of("l2", "max"),
        "bucket": one_of(*(str(64 << i) for i in range(11))),
        "coding": one_of("gamma", "omega"),
    },
)


def of(norms: list[float], text: str, count: int, **changed: str) -> Coded:
    """Make a part of one chunk: norms, and the stream's bits as text."""
    parameters = {"levels": "5", "norm": "l2", "bucket": "64", "coding": "gamma"} | changed
    bits = [int(bit) for bit in text.replace(" ", "")]
    data = (
        struct.pack(f"<{len(norms)}f", *norms)
        + np.packbits(np.array(bits, "u1"), bitorder="little").tobytes()
    )
    return Coded([data], count, (0, 0), parameters)


GOOD = {
    "a published vector": (
        of([7], "1 0 010 1 0 011 1 0 00110", 3, levels="7"),
        [2, 3, 6],
    ),
    "gaps and the end": (of([5], "011 1 00101 1 0 1 010", 5), [0, 0, -5, 1, 0]),
    "omega": (of([5], "110 1 101010 0 0 0 100", 5, coding="omega"), [0, 0, -5, 1, 0]),
    "two buckets, the first without a norm": (of([0, 1], "1 0 00101", 65), [0.0] * 64 + [1]),
    "nothing": (of([1], "010", 1), [0]),
}
REFUSED = {
    "no norm": (Coded([b"\0\0\0"], 1, (0, 0), of([], "", 0).parameters), "Truncated"),
    "no codes": (of([1], "", 1), "Truncated"),
    "half a code": (of([1], "00000000", 1), "Truncated"),
    "a level too high": (of([1], "1 0 00110", 1), "Corrupt"),
    "a position too far": (of([1], "011", 1), "Corrupt"),
    "a number beyond 2^17": (of([1], "0" * 40, 1), "Corrupt"),
    "groups without an end": (of([1], "1" * 64, 1, coding="omega"), "Corrupt"),
    "a bit behind": (of([1], "1 0 1 1", 1), "Corrupt"),
    "a byte behind": (of([1], "1 0 1" + "0" * 13, 1), "Corrupt"),
    "bits without a norm": (of([0], "0", 1), "Corrupt"),
} | {f"a norm of {bad}": (of([bad], "1 0 1", 1), "Corrupt") for bad in (-1, -0.0, np.nan, np.inf)}
