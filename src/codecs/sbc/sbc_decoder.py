"""sbc, decoded as its spec.md says, all chunks of a part together."""

import struct

import numpy as np
from spec_codec import SHARE, Codec, Coded, of_means
from spec_hashes import require
from spec_positions import FULL_CHUNK, chunk_positions
from spec_sparse import POSITIONS


def decode(coded: Coded) -> np.ndarray:
    """Put the mean at the positions that the chunks list, and 0 elsewhere."""
    scalar = coded.scalars[0]
    require(scalar & 0x7FFFFFFF < 0x7F800000, "Corrupt", "the mean is infinite or NaN")
    require(scalar != 0x80000000, "Corrupt", "the mean is -0")
    positions: list[int] = []
    for number, chunk in enumerate(coded.chunks):
        found = chunk_positions(chunk, positions[-1] + 1 if positions else 0, coded.count)
        is_last = number == len(coded.chunks) - 1
        require(is_last or len(found) == FULL_CHUNK, "Corrupt", "a short chunk before the last")
        require(bool(found) or number == 0, "Corrupt", "an empty chunk among others")
        positions += found
    require(bool(positions) == (scalar != 0), "Corrupt", "a mean of nothing, or none of something")
    values = np.zeros(coded.count, "<f4")
    values[positions] = coded.number()
    return values


CODEC = Codec(
    "sbc",
    4,
    decode,
    scalars=1,
    parameters={"p": SHARE, "positions": POSITIONS, "pull": of_means("p", SHARE)},
    later={"positions": "golomb", "pull": "p"},
)

MEAN = struct.unpack("<I", struct.pack("<f", -3.0))[0]
LANES = [64, 6, 0, 0, 0, 0, 0]
SIX = [0, 2, 3, 4, 5, 6]


def of(chunk: list[int], count: int, mean: int) -> Coded:
    """Make a part of one chunk."""
    return Coded([bytes(chunk)], count, (mean, 0))


def at(count: int, positions: list[int]) -> list[float]:
    """Give the values of a part that has the mean at these positions."""
    return [-3.0 if i in positions else 0.0 for i in range(count)]


GOOD = {
    "nothing": (of([0, 0, 0], 5, 0), at(5, [])),
    "one position": (of([0, 1, 0, 4, 0, 0, 0], 5, MEAN), at(5, [4])),
    "a gap of 3 with b = 1": (of([1, 2, 0, 1, 0, 0, 0, 0b101], 8, MEAN), at(8, [1, 5])),
    "two gaps": (of([1, 3, 0, 0, 0, 0, 0, 0b001011], 8, MEAN), at(8, [0, 6, 7])),
    "escape": (of([0, 2, 0, 0, 0, 0, 0, 255, 255, 255, 24, 0, 0, 0], 26, MEAN), at(26, [0, 25])),
    "interpolative, only the ends": (
        of([31, 2, 0, 1, 0, 0, 0, 7, 0, 0, 0], 8, MEAN),
        at(8, [1, 7]),
    ),
    "interpolative, the last of three places": (
        of([31, 3, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0b01], 5, MEAN),
        at(5, [0, 3, 4]),
    ),
    "four lanes": (of([*LANES, 1, 0, 1, 0, 1, 0, 0b01, 0, 0, 0], 7, MEAN), at(7, SIX)),
}
REFUSED = {
    "a mean of nothing": (of([0, 0, 0], 5, MEAN), "Corrupt"),
    "positions without a mean": (of([0, 1, 0, 4, 0, 0, 0], 5, 0), "Corrupt"),
    "beyond the part": (of([0, 1, 0, 5, 0, 0, 0], 5, MEAN), "Corrupt"),
    "short head": (of([0, 1, 0, 4, 0, 0], 5, MEAN), "Truncated"),
    "bytes after nothing": (of([0, 0, 0, 0], 5, 0), "Corrupt"),
    "b without gaps": (of([1, 1, 0, 4, 0, 0, 0], 5, MEAN), "Corrupt"),
    "b of 25": (of([25, 2, 0, 0, 0, 0, 0, 2, 0, 0, 0], 5, MEAN), "Corrupt"),
    "two lanes": (of([32, 2, 0, 0, 0, 0, 0, 1, 0, 0], 5, MEAN), "Corrupt"),
    "interpolative, one position": (of([31, 1, 0, 4, 0, 0, 0, 4, 0, 0, 0], 5, MEAN), "Corrupt"),
    "interpolative, no room": (of([31, 3, 0, 1, 0, 0, 0, 2, 0, 0, 0], 5, MEAN), "Corrupt"),
    "interpolative, last beyond": (of([31, 2, 0, 1, 0, 0, 0, 5, 0, 0, 0], 5, MEAN), "Corrupt"),
    "interpolative, a short head": (of([31, 2, 0, 1, 0, 0, 0, 4, 0, 0], 5, MEAN), "Truncated"),
    "interpolative, no stream": (of([31, 3, 0, 0, 0, 0, 0, 4, 0, 0, 0], 5, MEAN), "Truncated"),
    "interpolative, a set pad": (of([31, 3, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4], 5, MEAN), "Corrupt"),
    "no stream": (of([0, 2, 0, 0, 0, 0, 0], 5, MEAN), "Truncated"),
    "a set pad": (of([0, 2, 0, 0, 0, 0, 0, 0b100], 5, MEAN), "Corrupt"),
    "a byte more": (of([0, 2, 0, 0, 0, 0, 0, 0, 0], 5, MEAN), "Corrupt"),
    "short escape": (of([0, 2, 0, 0, 0, 0, 0, *[255] * 3, 23, 0, 0, 0], 99, MEAN), "Corrupt"),
    "lane beyond the end": (of([*LANES, 1, 0, 1, 0, 9, 0, 1, 0, 0, 0], 7, MEAN), "Truncated"),
} | {
    f"a mean of {mean:#x}": (of([0, 1, 0, 4, 0, 0, 0], 5, mean), "Corrupt")
    for mean in (0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000)
}
