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


def of(chunk: bytes, count: int, m: float = 1) -> Coded:
    """Make a part of one chunk."""
    return Coded([chunk], count, (int(np.array(m, "<f4").view("<u4")), 0))


def rice(k: int, codes: list[str], nonzeros: int | None = None) -> bytes:
    """Build a chunk of mode 2 from codes written as strings of bits, first bit first."""
    bits = "".join(codes)
    bits += "0" * (-len(bits) % 8)
    stream = bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))
    return struct.pack("<BBH", 2, k, len(codes) if nonzeros is None else nonzeros) + stream


def low_first(value: int, bits: int) -> str:
    """Write a number least significant bit first."""
    return "".join(str(value >> place & 1) for place in range(bits))


GOOD = {
    "mode 0": (of(bytes([0, 121 + 81]), 1), [1]),
    "mode 0, three elements in a row": (of(bytes([0, 81 * 2 + 9 + 3 + 1]), 3), [1, -1, 0]),
    "mode 0, two bytes": (of(bytes([0, 121 + 81, 121 - 27]), 8), [1, 0, 0, -1, 0, 0, 0, 0]),
    "mode 1, 15 zero bytes": (of(bytes([1, 255, 121]), 75), [0] * 75),
    "mode 1, 28 zero bytes": (of(bytes([1, 255, 255]), 140), [0] * 140),
    "mode 1, two zero bytes": (of(bytes([1, 243]), 10), [0] * 10),
    "mode 2, none": (of(rice(15, []), 4), [0] * 4),
    "mode 2": (of(rice(1, ["0" + "1" + "1", "10" + "0" + "0"]), 6), [0, -1, 0, 0, 1, 0]),
    "mode 2, escape": (of(rice(0, ["1" * 24 + low_first(24, 16) + "0"]), 25), [0] * 24 + [1]),
    "mode 2, longest code": (of(rice(0, ["1" * 23 + "0" + "1"]), 24), [0] * 23 + [-1]),
}
REFUSED = {
    "wrong pad digit": (of(bytes([0, 81 * 2 + 27 + 9 + 3 + 2]), 1), "Corrupt"),
    "wrong pad digit, mode 1": (of(bytes([1, 81 * 2 + 27 + 9 + 3]), 1), "Corrupt"),
    "byte above 242": (of(bytes([0, 243]), 5), "Corrupt"),
    "mode 0 too short": (of(bytes([0, 121]), 6), "Truncated"),
    "mode 0 too long": (of(bytes([0, 121, 121]), 5), "Corrupt"),
    "split run of single bytes": (of(bytes([1, 121, 121]), 10), "Corrupt"),
    "split run of short codes": (of(bytes([1, 243, 243]), 20), "Corrupt"),
    "split run, long code last": (of(bytes([1, 121, 255]), 75), "Corrupt"),
    "run past the rows": (of(bytes([1, 244]), 10), "Corrupt"),
    "mode 1 too short": (of(bytes([1, 255]), 75), "Truncated"),
    "mode 1 too long": (of(bytes([1, 243, 122]), 10), "Corrupt"),
    "escape with a shorter code": (
        of(rice(0, ["1" * 24 + low_first(23, 16) + "0"]), 30),
        "Corrupt",
    ),
    "Rice padding": (of(rice(0, ["00000001"], nonzeros=1), 5), "Corrupt"),
    "byte after the last sign": (of(rice(0, ["00"]) + b"\0", 5), "Corrupt"),
    "byte without digits": (of(rice(0, []) + b"\0", 5), "Corrupt"),
    "position beyond the chunk": (of(rice(0, ["11111" + "0" + "0"]), 5), "Corrupt"),
    "k above 15": (of(rice(16, []), 5), "Corrupt"),
    "more digits than elements": (of(rice(0, ["00"] * 2), 1), "Corrupt"),
    "stream too short": (of(rice(0, ["00"] * 4, nonzeros=5), 5), "Truncated"),
    "mode 2 too short": (of(bytes([2, 0, 0]), 5), "Truncated"),
    "unknown mode": (of(bytes([3, 121]), 5), "Corrupt"),
} | {
    f"{chunk.hex()} where m is 0": (of(chunk, 5, 0), "Corrupt")
    for chunk in (bytes([0, 122]), bytes([1, 122]), rice(0, ["00"]))
}
REFUSED |= {
    f"m of {m:#x}": (Coded([b"\0\x79"], 5, (m, 0)), "Corrupt")
    for m in (0x7FC00000, 0x7F800000, 0x80000000, 0xBF800000)
}
GOOD["m of 0"] = (of(b"\0\x79", 5, 0), [0] * 5)
