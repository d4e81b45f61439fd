"""topk, decoded as its spec.md and section 2 of sbc's say."""

import numpy as np
from spec_bits import BitReader
from spec_codec import SHARE, Codec, Coded, of_means, one_of
from spec_hashes import require

CHUNK_POSITIONS = 16384
LARGEST_STEP = 0x7C010203
INTERPOLATIVE = 31
LARGEST_RICE = 24
ESCAPE_BITS = 32
VALUE_BITS = {"fp32": 32, "bf16": 16, "int8": 8, "2bit": 2}
MEANS_BYTES = 16


def u16(data: bytes, at: int) -> int:
    """Read two bytes."""
    return int.from_bytes(data[at : at + 2], "little")


def u32(data: bytes, at: int) -> int:
    """Read four bytes."""
    return int.from_bytes(data[at : at + 4], "little")


def rice_positions(data: bytes, n: int) -> list[int]:
    """Take the positions of a chunk whose gaps are Rice codes in lanes."""
    rice, lanes = data[0] & 31, 1 << (data[0] >> 5)
    require(rice <= LARGEST_RICE, "Corrupt", "a Rice parameter above 24")
    require(lanes in (1, 4, 8), "Corrupt", f"{lanes} lanes")
    require(n > 1 or data[0] == 0, "Corrupt", "a code where there are no gaps")
    if n == 0:
        require(len(data) == 3, "Corrupt", "bytes behind a chunk without positions")
        return []
    at = 7 + 2 * (lanes - 1)
    require(len(data) >= at, "Truncated", "the positions end inside their head")
    streams = []
    for lane in range(lanes - 1):
        size = u16(data, 7 + 2 * lane)
        require(len(data) >= at + size, "Truncated", "the positions end before the last lane")
        streams.append(BitReader(data[at : at + size]))
        at += size
    streams.append(BitReader(data[at:]))
    positions = [u32(data, 3)]
    for gap in range(n - 1):
        distance = streams[gap % lanes].rice(rice, ESCAPE_BITS) + 1
        positions.append(positions[-1] + distance)
    for stream in streams:
        stream.finish()
    return positions


def place(stream: BitReader, places: int) -> int:
    """Take one of so many places; those in the middle have the shorter codes."""
    c = places.bit_length() - 1
    t = (2 << c) - places
    y = stream.number(c)
    if y >= t:
        y = 2 * y + stream.bit() - t
    return (y + (places - t) // 2) % places


def between(stream: BitReader, m: int, low: int, high: int) -> list[int]:
    """Take m positions that lie in low ... high: the middle one, those before it, those behind."""
    if m == 0:
        return []
    half = m // 2
    middle = low + half + place(stream, high - low + 1 - (m - 1))
    before = between(stream, half, low, middle - 1)
    return [*before, middle, *between(stream, m - half - 1, middle + 1, high)]


def interpolative_positions(data: bytes, n: int, count: int) -> list[int]:
    """Take the positions of an interpolative chunk."""
    require(n > 1, "Corrupt", "an interpolative chunk of fewer than 2 positions")
    require(len(data) >= 11, "Truncated", "the positions end inside their head")
    first, last = u32(data, 3), u32(data, 7)
    require(first < count and last < count, "Corrupt", "a position outside the part")
    require(last - first >= n - 1, "Corrupt", "too few places for the positions")
    stream = BitReader(data[11:])
    positions = between(stream, n - 2, first + 1, last - 1)
    stream.finish()
    return [first, *positions, last]


def chunk_positions(data: bytes, n: int, count: int) -> list[int]:
    """Take the positions of a chunk, in either code."""
    if data[0] == INTERPOLATIVE:
        return interpolative_positions(data, n, count)
    positions = rice_positions(data, n)
    require(not positions or positions[-1] < count, "Corrupt", "a position outside the part")
    return positions


def chunk_values(data: bytes, kind: str, step: np.float32) -> np.ndarray:
    """Read the values of a chunk."""
    if kind == "int8":
        codes = np.frombuffer(data, "i1")
        require(not (codes == -128).any(), "Corrupt", "a code of -128")
        require(step != 0 or not codes.any(), "Corrupt", "a code where the step is 0")
        return codes.astype("<f4") * step
    if kind == "bf16":
        values = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    else:
        values = np.frombuffer(data, "<f4")
    require(bool(np.isfinite(values).all()), "Corrupt", "a value is not finite")
    return values


def binned_values(data: bytes, n: int, means: np.ndarray) -> np.ndarray:
    """Give each value the mean of its bin."""
    require(bool(np.isfinite(means).all()), "Corrupt", "a mean is not finite")
    stream = BitReader(data)
    codes = [stream.number(2) for _ in range(n)]
    stream.finish()
    return means[codes]


def decode(coded: Coded) -> np.ndarray:
    """Put the values sent at their positions, and +0 elsewhere."""
    kind = coded.parameters["values"]
    largest = LARGEST_STEP if kind == "int8" else 0
    require(coded.scalars[0] <= largest, "Corrupt", "the step is out of range")
    require(len(coded.chunks) > 0, "Corrupt", "a part without chunks")
    values = np.zeros(coded.count, "<f4")
    means = np.zeros(4, "<f4")
    last, sent = -1, 0
    for index, chunk in enumerate(coded.chunks):
        require(len(chunk) >= 3, "Truncated", "a chunk of fewer than 3 bytes")
        n = u16(chunk, 1)
        require(n <= CHUNK_POSITIONS, "Corrupt", "more than 16,384 elements in a chunk")
        behind = index + 1 < len(coded.chunks)
        require(not behind or n == CHUNK_POSITIONS, "Corrupt", "a chunk that is not full")
        require(n > 0 or index == 0, "Corrupt", "an empty chunk among others")
        codes = len(chunk) - (n * VALUE_BITS[kind] + 7) // 8
        has_means = kind == "2bit" and index == 0 and n > 0
        cut = codes - MEANS_BYTES if has_means else codes
        require(cut >= 3, "Truncated", "the chunk ends inside its values")
        positions = chunk_positions(chunk[:cut], n, coded.count)
        if has_means:
            means = np.frombuffer(chunk[cut:codes], "<f4")
        if kind == "2bit":
            found = binned_values(chunk[codes:], n, means)
        else:
            found = chunk_values(chunk[codes:], kind, coded.number())
        if n > 0:
            require(positions[0] > last, "Corrupt", "positions that do not grow")
            last = positions[-1]
            values[positions] = np.where(found == 0, np.float32(0), found)
        sent += n
    require(sent > 0 or coded.scalars[0] == 0, "Corrupt", "a step where nothing is sent")
    return values


CODEC = Codec(
    "topk",
    14,
    decode,
    scalars=1,
    parameters={
        "k": SHARE,
        "values": one_of(*VALUE_BITS),
        "positions": one_of("golomb", "auto"),
        "chunk": one_of("none", *(str(2**power) for power in range(6, 17))),
        "pull": of_means("k", SHARE),
    },
    later={"chunk": "none", "pull": "k"},
)
