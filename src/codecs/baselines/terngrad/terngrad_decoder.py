"""terngrad, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded, number
from spec_hashes import require

ROW = 320
ONE = 0x3F800000


def decode(coded: Coded) -> np.ndarray:
    """Give each element m times its digit."""
    require(coded.scalars[0] < 0x7F800000, "Corrupt", "m is negative, infinite or NaN")
    size = -(-coded.count // 5)
    require(len(coded.chunk) >= size, "Truncated", "fewer bytes than the elements need")
    require(len(coded.chunk) <= size, "Corrupt", "more bytes than the elements need")
    packed = np.frombuffer(coded.chunk, "u1")
    require(not (packed > 242).any(), "Corrupt", "a byte above 242")
    digits = np.empty(0, np.int16)
    for first in range(0, coded.count, ROW):
        row = digits_of(packed[first // 5 : first // 5 + ROW // 5].astype(np.int16))
        elements = min(ROW, coded.count - first)
        require(not row[elements:].any(), "Corrupt", "a pad digit other than 1")
        digits = np.concatenate([digits, row[:elements]])
    m = coded.number()
    require(m != 0 or not digits.any(), "Corrupt", "a digit where m is 0")
    return np.array([-m, 0, m], "<f4")[digits + 1]


def digits_of(row: np.ndarray) -> np.ndarray:
    """Give the digits of a row: byte j has j, j + t, ..., the first in its highest place."""
    return np.concatenate([row // 3**place % 3 for place in (4, 3, 2, 1, 0)]) - 1


def clip(text: str) -> None:
    """Check the parameter."""
    if text != "off":
        number(1, 100)(text)


CODEC = Codec("terngrad", 10, decode, chunk_elements=40960, scalars=1, parameters={"clip": clip})


def of(chunk: list[int], count: int, m: int = ONE) -> Coded:
    """Make a part of one chunk."""
    return Coded([bytes(chunk)], count, (m, 0))


GOOD = {
    "three and two pads": (of([175], 3), [1, -1, 0]),
    "two bytes": (of([118, 130], 10), [0, 0, 0, 0, 0, 1, -1, 0, 0, 0]),
    "a second row": (of([121] * 64 + [202], 321), [0] * 320 + [1]),
    "zeros": (of([121], 5, 0), [0] * 5),
}
REFUSED = {
    "too short": (of([121], 6), "Truncated"),
    "too long": (of([121, 121], 5), "Corrupt"),
    "a byte above 242": (of([243], 5), "Corrupt"),
    "a pad of another digit": (of([174], 3), "Corrupt"),
    "a digit without m": (of([122], 5, 0), "Corrupt"),
} | {f"m of {m:#x}": (of([121], 5, m), "Corrupt") for m in (0x7F800000, 0x7FC00000, 0x80000000)}
