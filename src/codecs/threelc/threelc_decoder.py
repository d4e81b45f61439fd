"""3lc, decoded as its spec.md says."""

import struct

import numpy as np
from spec_bits import BitReader
from spec_codec import SWITCH, Codec, Coded, number, of_means, one_of
from spec_hashes import require

ROW = 320
ZERO_BYTE = 121  # five digits of value 0
LAST_DIGITS = 242
LONG_RUN = 255


def decode(coded: Coded) -> np.ndarray:
    """Decode the digits of a chunk in its mode and multiply them with m."""
    require(coded.scalars[0] < 0x7F800000, "Corrupt", "m is negative, infinite or NaN")
    mode, body, n = coded.chunk[0], coded.chunk[1:], coded.count
    require(mode <= 2, "Corrupt", f"unknown chunk mode {mode}")
    if mode == 2:
        digits = positions_digits(body, n)
    else:
        if mode == 1:
            body = expand_runs(body, -(-n // 5))
        digits = rows_digits(body, n)
    m = coded.number()
    require(m != 0 or not digits.any(), "Corrupt", "a digit where m is 0")
    return np.array([-m, 0, m], "<f4")[digits + 1]


def rows_digits(body: bytes, n: int) -> np.ndarray:
    """Decode mode 0: rows of 320 elements in base 3^5; digits -1, 0, +1."""
    size = -(-n // 5)
    require(len(body) >= size, "Truncated", "fewer bytes than the rows have")
    require(len(body) <= size, "Corrupt", "more bytes than the rows have")
    packed = np.frombuffer(body, "u1")
    require(int(packed.max()) <= LAST_DIGITS, "Corrupt", "a byte above 242")
    whole = n // ROW
    rows = [unpack_row(packed[64 * row : 64 * row + 64]) for row in range(whole)]
    rest = n - ROW * whole
    if rest:
        last = unpack_row(packed[64 * whole :])
        require(not last[rest:].any(), "Corrupt", "a pad digit other than 1")
        rows.append(last[:rest])
    return np.concatenate(rows)


def unpack_row(row: np.ndarray) -> np.ndarray:
    """Give five digits for each byte: digit p of byte j is element j + p * t."""
    wide = row.astype(np.int16)
    return np.concatenate([wide // weight % 3 for weight in (81, 27, 9, 3, 1)]) - 1


def expand_runs(body: bytes, size: int) -> bytes:
    """Undo the zero runs of mode 1; the result has `size` bytes."""
    out = bytearray()
    after_short = False
    for code in body:
        require(len(out) < size, "Corrupt", "bytes after the last row")
        zero_code = code == ZERO_BYTE or code > LAST_DIGITS
        require(
            not (zero_code and after_short), "Corrupt", "a zero run in more codes than it needs"
        )
        if code > LAST_DIGITS:
            out += bytes([ZERO_BYTE]) * (code - 241)
            require(len(out) <= size, "Corrupt", "a zero run past the last row")
        else:
            out.append(code)
        after_short = zero_code and code != LONG_RUN
    require(len(out) == size, "Truncated", "the chunk ends before its rows")
    return bytes(out)


def positions_digits(body: bytes, n: int) -> np.ndarray:
    """Decode mode 2: positions and signs of the digits that aren't 0."""
    require(len(body) >= 3, "Truncated", "mode 2 without its 3 bytes")
    k, nonzeros = struct.unpack_from("<BH", body)
    require(k <= 15, "Corrupt", f"Rice parameter {k}")
    require(nonzeros <= n, "Corrupt", "more digits than elements")
    digits = np.zeros(n, np.int16)
    stream = BitReader(body[3:])
    position = -1
    for _ in range(nonzeros):
        position += 1 + stream.rice(k, 16)
        require(position < n, "Corrupt", "a position beyond the chunk")
        digits[position] = -1 if stream.bit() else 1
    stream.finish()
    return digits


CODEC = Codec(
    "3lc",
    3,
    decode,
    chunk_elements=40960,
    scalars=1,
    parameters={
        "s": number(0.5, 2),
        "mode": one_of("auto", "paper"),
        "runs": SWITCH,
        "pull": of_means("s", number(0.5, 2)),
    },
    later={"pull": "s"},
)
