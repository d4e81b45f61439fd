"""sketchml, decoded as its spec.md says, all chunks of a part together."""

import math
import struct

import numpy as np
from spec_bits import BitReader
from spec_codec import Codec, Coded, number, one_of
from spec_hashes import require

FULL_CHUNK = 65536
MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """SplitMix64's output function."""
    z &= MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def column_of(seed: int, key: int, row: int, columns: int) -> int:
    """Give the column of a key's cell in a row."""
    drawn = mix(mix(seed + GOLDEN) + GOLDEN * (4 * key + row + 1)) >> 32
    return drawn * columns >> 32


class Taker:
    """A chunk's bytes, taken from the front."""

    def __init__(self, data: bytes) -> None:
        """Begin at byte 0."""
        self._data = data

    def take(self, count: int) -> bytes:
        """Take so many bytes."""
        require(count <= len(self._data), "Truncated", "the end inside a chunk")
        taken, self._data = self._data[:count], self._data[count:]
        return taken

    def numbers(self, layout: str) -> tuple:
        """Take numbers of a struct."""
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def finish(self) -> None:
        """Check that nothing is left."""
        require(not self._data, "Corrupt", "bytes after the last table")


def decode(coded: Coded) -> np.ndarray:
    """Decode the pairs of all chunks."""
    require(coded.count < 2**32, "Corrupt", "2^32 elements")
    values = np.zeros(coded.count, "<f4")
    least = total = 0
    for i, chunk in enumerate(coded.chunks):
        is_last = i == len(coded.chunks) - 1
        found = sorted(chunk_pairs(chunk, coded), key=lambda pair: pair[0])
        require(is_last or len(found) == FULL_CHUNK, "Corrupt", "a short chunk before the last")
        require(len(found) > 0 or i == 0, "Corrupt", "an empty chunk beside others")
        total += len(found)
        require(total <= coded.count, "Corrupt", "more pairs than elements")
        if found:
            (first,) = struct.unpack_from("<I", chunk, 4)
            require(found[0][0] == first, "Corrupt", "another first key than stated")
        for key, value in found:
            require(least <= key < coded.count, "Corrupt", f"key {key}")
            values[key] = value
            least = key + 1
    return values


def chunk_pairs(chunk: bytes, coded: Coded) -> list[tuple[int, np.float32]]:
    """Read the keys and values of a chunk, by groups."""
    given = coded.parameters
    rest = Taker(chunk)
    (pairs,) = rest.numbers("I")
    require(pairs <= FULL_CHUNK, "Corrupt", f"{pairs} pairs")
    if pairs == 0:
        rest.finish()
        return []
    first, *counts = rest.numbers("IHH")
    require(max(counts) <= int(given["q"]) // 2, "Corrupt", f"{counts} buckets")
    require(0 < sum(counts) <= pairs, "Corrupt", f"{counts} buckets of {pairs} pairs")
    means = [np.frombuffer(rest.take(4 * count), "<f4") for count in counts]
    for of_sign in means:
        require(bool(np.isfinite(of_sign).all() and (of_sign > 0).all()), "Corrupt", "a mean")
        require(bool((np.diff(of_sign.astype("f8")) >= 0).all()), "Corrupt", "means fall")
    found = []
    for of_sign, factor in zip(means, (1, -1), strict=True):
        groups = min(int(given["r"]) // 2, len(of_sign))
        for group in range(groups):
            buckets = [i for i in range(len(of_sign)) if i * groups // len(of_sign) == group]
            keys = group_keys(rest, first, pairs - len(found))
            chosen = group_buckets(rest, keys, len(buckets), coded)
            found += [
                (k, of_sign[buckets[0] + i] * factor) for k, i in zip(keys, chosen, strict=True)
            ]
    require(len(found) == pairs, "Corrupt", "fewer keys than pairs")
    rest.finish()
    return found


def group_keys(rest: Taker, least: int, most: int) -> list[int]:
    """Read the keys of a group."""
    (count,) = rest.numbers("I")
    require(0 < count <= most, "Corrupt", f"{count} keys in a group")
    flags = BitReader(rest.take(-(-count // 4)))
    keys = []
    for size in [flags.number(2) + 1 for _ in range(count)]:
        gap = int.from_bytes(rest.take(size), "little")
        require(size == max(1, -(-gap.bit_length() // 8)), "Corrupt", "a gap with a byte too many")
        keys.append(least + gap)
        least = keys[-1] + 1
    flags.finish()
    return keys


def group_buckets(rest: Taker, keys: list[int], width: int, coded: Coded) -> list[int]:
    """Read a group's table, and what it has for each key."""
    rows = int(coded.parameters["rows"])
    columns = math.ceil(float(np.float32(coded.parameters["cols"])) * len(keys))
    bits = (width - 1).bit_length()
    stream = BitReader(rest.take(-(-rows * columns * bits // 8)))
    table = [[stream.number(bits) for _ in range(columns)] for _ in range(rows)]
    stream.finish()
    places = [
        [column_of(coded.scalars[0], key, row, columns) for row in range(rows)] for key in keys
    ]
    for row in range(rows):
        used = {place[row] for place in places}
        for column, cell in enumerate(table[row]):
            require(cell < width, "Corrupt", f"{cell} in a group of {width}")
            require(column in used or cell == width - 1, "Corrupt", "a cell that no key has")
    return [max(table[row][place[row]] for row in range(rows)) for place in places]


CODEC = Codec(
    "sketchml",
    24,
    decode,
    scalars=1,
    parameters={
        "q": one_of(*(str(2**i) for i in range(1, 10))),
        "r": one_of("2", "4", "8", "16", "32"),
        "rows": one_of(*"1234"),
        "cols": number(np.float32(0.05), np.nextafter(np.float32(1), np.float32(2))),
    },
)

# The example of spec.md.
HEAD = [3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0]
MEANS = [0, 0, 0xC0, 0x3F, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40]
ABOVE = [2, 0, 0, 0, 0, 0, 4, 1]
BELOW = [1, 0, 0, 0, 0, 3]
EXAMPLE = [*HEAD, *MEANS, *ABOVE, *BELOW]


def of(chunk: list[int]) -> Coded:
    """Make a part of one chunk."""
    given = {"q": "4", "r": "2", "rows": "1", "cols": "1"}
    return Coded([bytes(chunk)], 1000, (0, 0), given)


def at(values: dict[int, float]) -> list[float]:
    """Give the values of a part that has these."""
    return [values.get(i, 0.0) for i in range(1000)]


GOOD = {
    "nothing": (of([0, 0, 0, 0]), at({})),
    "the example": (of(EXAMPLE), at({0: 1.5, 3: -3.0, 5: 1.5})),
    "a larger bucket": (
        of([*HEAD, *MEANS, *ABOVE[:7], 3, *BELOW]),
        at({0: 2.0, 3: -3.0, 5: 2.0}),
    ),
}
REFUSED = {
    "a short count": (of([3, 0, 0]), "Truncated"),
    "a short head": (of(HEAD[:11]), "Truncated"),
    "short means": (of([*HEAD, *MEANS[:11]]), "Truncated"),
    "no group": (of([*HEAD, *MEANS]), "Truncated"),
    "no flags": (of([*HEAD, *MEANS, *ABOVE[:4]]), "Truncated"),
    "short gaps": (of([*HEAD, *MEANS, *ABOVE[:6]]), "Truncated"),
    "no cells": (of([*HEAD, *MEANS, *ABOVE[:7]]), "Truncated"),
    "no second group": (of([*HEAD, *MEANS, *ABOVE]), "Truncated"),
    "a byte more": (of([*EXAMPLE, 0]), "Corrupt"),
    "bytes after nothing": (of([0, 0, 0, 0, 0]), "Corrupt"),
    "too many pairs": (of([1, 0, 1, *EXAMPLE[3:]]), "Corrupt"),
    "another number of pairs": (of([4, *EXAMPLE[1:]]), "Corrupt"),
    "a group of none": (of([*HEAD, *MEANS, 0, *ABOVE[1:], *BELOW]), "Corrupt"),
    "too many buckets": (of([*HEAD[:8], 3, *EXAMPLE[9:]]), "Corrupt"),
    "no buckets": (of([1, *HEAD[1:8], 0, 0, 0, 0]), "Corrupt"),
    "means that fall": (of([*HEAD, *MEANS[:6], 0x80, 0x3F, *EXAMPLE[20:]]), "Corrupt"),
    "a mean of 0": (of([*HEAD, 0, 0, 0, 0, *EXAMPLE[16:]]), "Corrupt"),
    "a negative mean": (of([*HEAD, 0, 0, 0xC0, 0xBF, *EXAMPLE[16:]]), "Corrupt"),
    "an infinite mean": (of([*HEAD, *MEANS[:10], 0x80, 0x7F, *EXAMPLE[24:]]), "Corrupt"),
    "a key twice": (of([*EXAMPLE[:-1], 5]), "Corrupt"),
    "a first key that isn't there": (of([*EXAMPLE[:29], 1, *EXAMPLE[30:]]), "Corrupt"),
    "a key outside": (of([*HEAD[:4], 227, 3, *EXAMPLE[6:]]), "Corrupt"),
    "a long gap": (of([*HEAD, *MEANS, *ABOVE[:4], 1, 0, *ABOVE[5:], *BELOW]), "Corrupt"),
    "a set pad behind the flags": (of([*EXAMPLE[:28], 16, *EXAMPLE[29:]]), "Corrupt"),
    "a set pad behind the cells": (of([*EXAMPLE[:31], 5, *EXAMPLE[32:]]), "Corrupt"),
    "a cell that no key has": (of([*EXAMPLE[:31], 0, *EXAMPLE[32:]]), "Corrupt"),
}
