"""topk, decoded as its spec.md and section 2 of sbc's say."""

from dataclasses import replace

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


# The parts below are made by hand: bits are written in the order of the stream.
INF, NAN, MINUS_ONE, HALF = 0x7F800000, 0x7FC00000, 0xBF800000, 0x3F000000
ESCAPE = "1" * 24


def bits(text: str) -> bytes:
    """Write bits, 0 or 1 each, and zeros that fill the last byte."""
    found = np.array(list(text.replace(" ", "")), "U1").astype("u1")
    return np.packbits(found, bitorder="little").tobytes()


def rice(code: int, n: int, first: int, *lanes: str) -> bytes:
    """Write positions in lanes of these bits."""
    streams = [bits(lane) for lane in lanes]
    head = np.array([n], "<u2").tobytes() + np.array([first], "<u4").tobytes()
    sizes = np.array([len(stream) for stream in streams[:-1]], "<u2").tobytes()
    return bytes([code]) + head + sizes + b"".join(streams)


def interpolative(n: int, first: int, last: int, stream: str = "") -> bytes:
    """Write positions in the interpolative code."""
    head = np.array([n], "<u2").tobytes() + np.array([first, last], "<u4").tobytes()
    return bytes([INTERPOLATIVE]) + head + bits(stream)


def fp32(count: int, *chunks: bytes) -> Coded:
    """Make a part whose values are float32."""
    parameters = {"k": "0.01", "values": "fp32", "positions": "golomb"}
    return Coded(list(chunks), count, parameters=parameters)


def bf16(count: int, *chunks: bytes) -> Coded:
    """Make a part whose values are bfloat16."""
    parameters = {"k": "0.01", "values": "bf16", "positions": "golomb"}
    return Coded(list(chunks), count, parameters=parameters)


def int8(count: int, step: int, *chunks: bytes) -> Coded:
    """Make a part whose values are multiples of a step of these bits."""
    parameters = {"k": "0.01", "values": "int8", "positions": "auto"}
    return Coded(list(chunks), count, (step, 0), parameters)


def two_bits(count: int, *chunks: bytes) -> Coded:
    """Make a part whose values are means of bins."""
    parameters = {"k": "0.01", "values": "2bit", "positions": "golomb", "chunk": "64"}
    return Coded(list(chunks), count, parameters=parameters)


def floats(*values: float) -> bytes:
    """Write float32 values."""
    return np.array(values, "<f4").tobytes()


def only(value: int) -> Coded:
    """Make a part of one element, of a float32 of these bits."""
    return fp32(1, rice(0, 1, 0, "") + value.to_bytes(4, "little"))


ONES = bytes([1] * CHUNK_POSITIONS)
GAPS = rice(0, CHUNK_POSITIONS, 0, "0" * (CHUNK_POSITIONS - 1))
FULL = GAPS + ONES
NONE = bytes(3)
PAIR = floats(1.5, -2)
MEANS = floats(-3, -1, 0, 2)
GOOD = {
    "one position": (fp32(4, rice(0, 1, 2, "") + floats(-3)), [0, 0, -3, 0]),
    "a gap": (fp32(8, rice(1, 2, 2, "110 0") + PAIR), [0, 0, 1.5, 0, 0, 0, 0, -2]),
    "low bits, the lowest first": (fp32(4, rice(2, 2, 0, "0 10") + PAIR), [1.5, 0, -2, 0]),
    "an escape": (
        fp32(26, rice(0, 2, 0, ESCAPE + "00011" + "0" * 27) + PAIR),
        [1.5, *[0] * 24, -2],
    ),
    "4 lanes, two without codes": (
        fp32(6, rice(64, 3, 0, "10", "110", "", "") + floats(1, 2, 3)),
        [1, 0, 2, 0, 0, 3],
    ),
    "8 lanes, the ninth gap in the first": (
        fp32(12, rice(96, 10, 0, "0 10", *["0"] * 7) + floats(*range(1, 11))),
        [*range(1, 10), 0, 10, 0],
    ),
    "nothing sent": (fp32(3, NONE), [0, 0, 0]),
    "zeros of either sign": (fp32(2, rice(0, 2, 0, "0") + floats(0, -0.0)), [0, 0]),
    "bf16": (bf16(2, rice(0, 1, 1, "") + b"\xc0\x3f"), [0, 1.5]),
    "int8": (int8(3, HALF, rice(0, 2, 0, "10") + bytes([129, 3])), [-63.5, 0, 1.5]),
    "a code of 0": (int8(2, HALF, rice(0, 2, 0, "0") + bytes([0, 255])), [0, -0.5]),
    "a step of 0": (int8(2, 0, rice(0, 2, 0, "0") + bytes(2)), [0, 0]),
    "the largest step": (int8(1, LARGEST_STEP, rice(0, 1, 0, "") + b"\x01"), [2.6793884e36]),
    "2 bits, the lowest first": (
        two_bits(7, rice(0, 5, 0, "10 0 0 10") + MEANS + bits("11 00 01 10 10")),
        [2, 0, -3, 0, -1, 0, -1],
    ),
    "2 bits, nothing sent": (two_bits(2, NONE), [0, 0]),
    "2 bits in two chunks": (
        two_bits(
            16386, GAPS + MEANS + bits("11" * CHUNK_POSITIONS), rice(0, 1, 16385, "") + bits("10")
        ),
        [*[2] * 16384, 0, -1],
    ),
    "two chunks": (
        int8(16390, HALF, FULL, rice(0, 1, 16386, "") + b"\x02"),
        [*[0.5] * 16384, 0, 0, 1, 0, 0, 0],
    ),
    "an interpolative chunk behind one in lanes": (
        int8(16387, HALF, FULL, interpolative(2, 16384, 16386) + bytes([4, 6])),
        [*[0.5] * 16384, 2, 0, 3],
    ),
    "interpolative, in 2 bits": (
        fp32(7, interpolative(3, 0, 6, "10") + floats(1, 2, 3)),
        [1, 0, 0, 2, 0, 0, 3],
    ),
    "interpolative, in 3 bits": (
        fp32(7, interpolative(3, 0, 6, "110") + floats(1, 2, 3)),
        [1, 0, 0, 0, 0, 2, 3],
    ),
    "interpolative, the middle one first": (
        fp32(10, interpolative(4, 0, 9, "100 10") + floats(1, 2, 3, 4)),
        [1, 0, 0, 2, 0, 0, 3, 0, 0, 4],
    ),
    "interpolative, without bits": (
        fp32(5, interpolative(5, 0, 4) + floats(1, 2, 3, 4, 5)),
        [1, 2, 3, 4, 5],
    ),
}
REFUSED = {
    "no chunk": (fp32(1), "Corrupt"),
    "2 bytes": (fp32(1, b"\0\0"), "Truncated"),
    "an end inside the values": (fp32(1, b"\0\1\0" + bytes(3)), "Truncated"),
    "less than 3 bytes before the values": (fp32(1, b"\0\1\0" + bytes(2)), "Truncated"),
    "16,385 positions": (
        int8(20000, HALF, rice(0, 16385, 0, "0" * 16384) + ONES + b"\1"),
        "Corrupt",
    ),
    "16,385 positions, interpolative": (
        int8(20000, HALF, interpolative(16385, 0, 16384) + ONES + b"\1"),
        "Corrupt",
    ),
    "a Rice parameter of 25": (fp32(9, rice(25, 2, 0, "0" * 26) + PAIR), "Corrupt"),
    "31 in lanes": (fp32(9, rice(64 + 31, 2, 0, "0", "", "", "") + PAIR), "Corrupt"),
    "2 lanes": (fp32(9, rice(32, 2, 0, "0", "") + PAIR), "Corrupt"),
    "16 lanes": (fp32(9, rice(128, 2, 0, "0", *[""] * 15) + PAIR), "Corrupt"),
    "a code for one position": (fp32(9, rice(1, 1, 0, "") + floats(1)), "Corrupt"),
    "lanes for one position": (fp32(9, rice(64, 1, 0, "", "", "", "") + floats(1)), "Corrupt"),
    "a code for none": (fp32(9, b"\1\0\0"), "Corrupt"),
    "a byte behind none": (fp32(9, NONE + b"\0"), "Corrupt"),
    "first outside": (fp32(9, rice(0, 1, 9, "") + floats(1)), "Corrupt"),
    "first far outside": (fp32(9, rice(0, 1, 2**32 - 1, "") + floats(1)), "Corrupt"),
    "a gap to outside": (fp32(9, rice(0, 2, 7, "10") + PAIR), "Corrupt"),
    "an escape to outside": (fp32(9, rice(0, 2, 7, ESCAPE + "1" * 32) + PAIR), "Corrupt"),
    "an escape for a short gap": (
        fp32(99, rice(1, 2, 0, ESCAPE + "111101" + "0" * 26) + PAIR),
        "Corrupt",
    ),
    "an end inside the head": (fp32(9, b"\0\1\0\0\0\0" + floats(1)), "Truncated"),
    "an end inside the lanes' sizes": (fp32(9, b"\x40\2\0" + bytes(9) + PAIR), "Truncated"),
    "an end inside lane 0": (
        fp32(9, b"\x40\2\0" + bytes(4) + b"\2\0\0\0\0\0" + b"\0" + PAIR),
        "Truncated",
    ),
    "lane 0 ends inside a code": (fp32(9, rice(64, 2, 0, "", "0", "", "") + PAIR), "Truncated"),
    "the last lane ends inside a code": (fp32(99, rice(1, 2, 0, "1111 1110") + PAIR), "Truncated"),
    "an end inside an escape": (fp32(99, rice(0, 2, 0, ESCAPE + "00011000") + PAIR), "Truncated"),
    "a set bit": (fp32(9, rice(0, 2, 0, "01") + PAIR), "Corrupt"),
    "a set bit in lane 0": (fp32(9, rice(64, 2, 0, "01", "", "", "") + PAIR), "Corrupt"),
    "a byte too many": (fp32(9, rice(0, 2, 0, "0" * 9) + PAIR), "Corrupt"),
    "a byte in a lane without codes": (fp32(9, rice(64, 2, 0, "0", "0", "", "") + PAIR), "Corrupt"),
    "a byte behind one position": (fp32(9, rice(0, 1, 0, "0") + floats(1)), "Corrupt"),
    "a chunk that is not full": (
        int8(16390, HALF, rice(0, 1, 0, "") + b"\1", rice(0, 1, 9, "") + b"\1"),
        "Corrupt",
    ),
    "an empty chunk behind a full one": (int8(16390, HALF, FULL, NONE), "Corrupt"),
    "an empty chunk before another": (fp32(9, NONE, rice(0, 1, 0, "") + floats(1)), "Corrupt"),
    "a chunk that does not grow": (
        int8(16390, HALF, FULL, rice(0, 1, 16383, "") + b"\1"),
        "Corrupt",
    ),
    "an interpolative chunk that does not grow": (
        int8(16390, HALF, FULL, interpolative(2, 16383, 16386) + b"\1\1"),
        "Corrupt",
    ),
    "interpolative, none": (fp32(9, interpolative(0, 0, 1)), "Corrupt"),
    "interpolative, one": (fp32(9, interpolative(1, 0, 0) + floats(1)), "Corrupt"),
    "interpolative, last outside": (fp32(9, interpolative(2, 0, 9) + PAIR), "Corrupt"),
    "interpolative, both outside": (fp32(9, interpolative(2, 9, 10) + PAIR), "Corrupt"),
    "interpolative, no room": (fp32(9, interpolative(3, 0, 1) + floats(1, 2, 3)), "Corrupt"),
    "interpolative, last before first": (fp32(9, interpolative(2, 5, 4) + PAIR), "Corrupt"),
    "interpolative, an end inside the head": (
        fp32(9, interpolative(2, 0, 1)[:10] + PAIR),
        "Truncated",
    ),
    "interpolative, no stream": (fp32(9, interpolative(3, 0, 6) + floats(1, 2, 3)), "Truncated"),
    "interpolative, an end inside a code": (
        fp32(999, interpolative(3, 0, 998, "0" * 8) + floats(1, 2, 3)),
        "Truncated",
    ),
    "interpolative, a set bit": (
        fp32(9, interpolative(3, 0, 6, "101") + floats(1, 2, 3)),
        "Corrupt",
    ),
    "interpolative, a byte too many": (fp32(9, interpolative(2, 0, 6, "0") + PAIR), "Corrupt"),
    "means that end": (two_bits(9, rice(0, 1, 0, "")[:6] + MEANS + b"\0"), "Truncated"),
    "no room for means": (two_bits(9, b"\0\1\0" + MEANS), "Truncated"),
    "an infinite mean": (two_bits(1, rice(0, 1, 0, "") + MEANS[4:] + b"\0\0\x80\x7f\0"), "Corrupt"),
    "a NaN among the means": (
        two_bits(1, rice(0, 1, 0, "") + b"\0\0\xc0\xff" + MEANS[4:] + b"\3"),
        "Corrupt",
    ),
    "a bit behind 2 bits": (two_bits(9, rice(0, 1, 0, "") + MEANS + bits("001")), "Corrupt"),
    "a byte behind 2 bits": (two_bits(9, rice(0, 1, 0, "") + MEANS + b"\0\0"), "Corrupt"),
    "means in the second chunk": (
        two_bits(
            16386,
            GAPS + MEANS + bits("11" * CHUNK_POSITIONS),
            rice(0, 1, 16385, "") + MEANS + bits("10"),
        ),
        "Corrupt",
    ),
    "a step for 2 bits": (
        replace(two_bits(1, rice(0, 1, 0, "") + MEANS + b"\0"), scalars=(HALF, 0)),
        "Corrupt",
    ),
    "bf16 Inf": (bf16(1, rice(0, 1, 0, "") + b"\x80\xff"), "Corrupt"),
    "bf16 NaN": (bf16(1, rice(0, 1, 0, "") + b"\xc0\x7f"), "Corrupt"),
    "-128": (int8(1, HALF, rice(0, 1, 0, "") + b"\x80"), "Corrupt"),
    "a code without a step": (int8(1, 0, rice(0, 1, 0, "") + b"\1"), "Corrupt"),
    "a step for nothing": (int8(1, HALF, NONE), "Corrupt"),
    "a step for fp32": (
        replace(fp32(1, rice(0, 1, 0, "") + floats(1)), scalars=(HALF, 0)),
        "Corrupt",
    ),
    "a step for bf16": (
        replace(bf16(1, rice(0, 1, 0, "") + b"\xc0\x3f"), scalars=(HALF, 0)),
        "Corrupt",
    ),
}
REFUSED |= {f"a value of {value:#x}": (only(value), "Corrupt") for value in (INF, NAN, 0xFF800000)}
REFUSED |= {
    f"a step of {step:#x}": (int8(1, step, rice(0, 1, 0, "") + b"\1"), "Corrupt")
    for step in (LARGEST_STEP + 1, INF, NAN, 0x80000000, MINUS_ONE)
}
