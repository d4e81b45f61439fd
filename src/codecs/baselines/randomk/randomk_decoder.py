"""randomk, decoded as its spec.md says, all chunks of a part together."""

import math
import struct
from fractions import Fraction

import numpy as np
from spec_codec import SHARE, SWITCH, Codec, Coded
from spec_hashes import require
from spec_values import FORMAT, WIDTHS, check_step, decoded

FULL_CHUNK = 16384
GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def mixed(z: int) -> int:
    """Scramble 64 bits (section 3)."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def places(seed: int, count: int, kept: int) -> list[int]:
    """Give the place of each value (section 2)."""
    key = mixed(seed + GOLDEN & MASK)
    found = []
    for i in range(kept):
        begin, end = i * count // kept, (i + 1) * count // kept
        drawn = mixed(key + GOLDEN * (i + 1) & MASK) >> 32
        found.append(begin + (drawn * (end - begin) >> 32))
    return found


def kept_of(k: str, count: int) -> int:
    """Give the number of elements that are sent of `count`."""
    share = Fraction(float(np.float32(k)))
    return min(count, max(1, math.floor(share * count + Fraction(1, 2))))


def decode(coded: Coded) -> np.ndarray:
    """Put the values at the places that the seed gives."""
    kept = kept_of(coded.parameters["k"], coded.count)
    kind = coded.parameters["values"]
    check_step(kind, coded.scalars[1])
    require(len(coded.chunks) == -(-kept // FULL_CHUNK), "Corrupt", "another number of chunks")
    end = 0
    for number, chunk in enumerate(coded.chunks):
        end += len(chunk)
        due = WIDTHS[kind] * min(kept, (number + 1) * FULL_CHUNK)
        require(end >= due, "Truncated", "chunk end below its values")
        require(end <= due, "Corrupt", "chunk end beyond its values")
    sent = decoded(b"".join(coded.chunks), kind, coded.scalars[1])
    values = np.zeros(coded.count, "<f4")
    values[places(coded.scalars[0], coded.count, kept)] = sent + np.float32(0)  # -0 is not written
    return values


CODEC = Codec(
    "randomk",
    8,
    decode,
    scalars=2,
    parameters={"k": SHARE, "unbiased": SWITCH, "values": FORMAT},
    later={"values": "fp32"},
)


def of(*chunks: bytes, values: str = "fp32", step: int = 0) -> Coded:
    """Make a part of ten elements, three of which are sent."""
    return Coded(list(chunks), 10, (5, step), {"k": "0.3", "values": values})


def at(first: float, third: float) -> list[float]:
    """Give the values of such a part, the second of which is a zero."""
    values = [0.0] * 10
    values[places(5, 10, 3)[0]], values[places(5, 10, 3)[2]] = first, third
    return values


CHUNK = struct.pack("<3f", 1, 2, 3)
STEP = struct.unpack("<I", struct.pack("<f", 0.5))[0]
GOOD = {
    "-0 is written nowhere": (of(struct.pack("<3f", 1.5, -0.0, -2)), at(1.5, -2)),
    "steps": (of(bytes([3, 0, 252]), values="int8", step=STEP), at(1.5, -2)),
}
REFUSED = {
    "too short": (of(CHUNK[:11]), "Truncated"),
    "too long": (of(CHUNK + b"0"), "Corrupt"),
    "a step of float32": (of(CHUNK, step=1), "Corrupt"),
    "a code without a step": (of(bytes([3, 0, 252]), values="int8"), "Corrupt"),
    "a chunk too many": (of(CHUNK[:8], CHUNK[8:]), "Corrupt"),
} | {
    f"a value of {bad}": (of(struct.pack("<3f", 1, 2, bad)), "Corrupt")
    for bad in (np.nan, np.inf, -np.inf)
}


def test_the_stream_is_splitmix64() -> None:
    """The first numbers of the published generator, whose state after i steps is i times g."""
    assert mixed(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF
    assert mixed(2 * 0x9E3779B97F4A7C15 & (1 << 64) - 1) == 0x6E789E6AA1B965F4


def test_each_stratum_has_one_place() -> None:
    """Of ten elements in three strata: [0, 3), [3, 6), [6, 10)."""
    for seed in range(200):
        first, second, third = places(seed, 10, 3)
        assert 0 <= first < 3 <= second < 6 <= third < 10
    assert {place for seed in range(200) for place in places(seed, 10, 3)} == set(range(10))


def test_shares() -> None:
    """Halves go up; at least one and at most all are sent."""
    assert [kept_of("0.5", n) for n in (1, 2, 3, 5)] == [1, 1, 2, 3]
    assert kept_of("0.000001", 7) == 1
    assert kept_of("0.999", 3) == 3
