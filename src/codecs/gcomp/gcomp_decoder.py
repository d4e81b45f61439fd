"""gcomp, decoded as its spec.md says, one chunk at a time; and what it keeps of a value."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from spec_codec import SWITCH, Codec, Coded, one_of
from spec_hashes import require

BLOCK = 16384
MAX_LENGTH = 8
ZERO, TINY, ESCAPES = 0, 1, 1024
STATIC_TABLES = {
    1: ([5, 2, 2, 2, 3, 5, 5, 7, 8, 8, 8, 8], 8, 8),
    2: ([6, 3, 2, 2, 3, 3, 4, 6, 7, 7, 8, 8], 8, 8),
    3: ([7, 4, 3, 3, 4, 4, 6, 6, 7, 8, 8, 8], 8, 1),
}


class ByteReader:
    """Takes numbers from the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        """Begin at byte 0."""
        self._data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        """Take `size` bytes."""
        require(size <= len(self._data) - self.at, "Truncated", "the chunk ends too early")
        self.at += size
        return self._data[self.at - size : self.at]

    def number(self, size: int = 1) -> int:
        """Take a number of `size` bytes."""
        return int.from_bytes(self.take(size), "little")

    def rest(self) -> bytes:
        """Take all that is left."""
        return self.take(len(self._data) - self.at)


@dataclass(frozen=True)
class Table:
    """Codes by (length, bits as read, first one lowest), and how wide mantissas are."""

    symbols: dict[tuple[int, int], int]
    mixed: bool
    cut: int  # L

    def has_code(self, symbol: int) -> bool:
        """Tell whether a symbol may not be escaped."""
        return symbol in self.symbols.values()

    def width(self, symbol: int) -> int:
        """Give the bits of sign and mantissa that follow."""
        if symbol == ZERO:
            return 0
        if symbol == TINY or symbol >> 2 == 255:
            return 24
        return 24 - 6 * (symbol & 3 if self.mixed else self.cut)


def read_window(reader: ByteReader, level: int, lengths: dict[int, int]) -> None:
    """Read the lengths of the exponents of one level."""
    count = reader.number()
    if not count:
        return
    first = reader.number()
    last = 254 if level else 255
    require(first >= 1 and first + count - 1 <= last, "Corrupt", "window out of range")
    packed = reader.take(-(-count // 2))
    nibbles = [nibble for byte in packed for nibble in (byte & 15, byte >> 4)]
    require(not any(nibbles[count:]), "Corrupt", "a nibble left over")
    require(nibbles[0] > 0 and nibbles[count - 1] > 0, "Corrupt", "a window with an unused end")
    for place in range(count):
        lengths[4 * (first + place) + level] = nibbles[place]


def read_lengths(reader: ByteReader, mixed: bool, table_id: int) -> dict[int, int]:
    """Read the lengths of a table, by symbol."""
    lengths: dict[int, int] = {}
    if table_id:
        base = reader.number()
        require(12 <= base <= 254, "Corrupt", "base of a static table")
        exponents, escape, zero = STATIC_TABLES[table_id]
        lengths = {4 * (base - place): length for place, length in enumerate(exponents)}
        return lengths | {ESCAPES: escape, ZERO: zero}
    named = [ESCAPES, ZERO]
    if mixed:
        named = [ESCAPES, ESCAPES + 1, ESCAPES + 2, ESCAPES + 3, ZERO, TINY]
    for low, high in zip(named[::2], named[1::2], strict=True):
        both = reader.number()
        lengths |= {low: both & 15, high: both >> 4}
    for level in range(4 if mixed else 1):
        read_window(reader, level, lengths)
    return lengths


def read_table(reader: ByteReader, mixed: bool, cut: int, table_id: int) -> Table:
    """Read a table and give its symbols their canonical codes."""
    lengths = read_lengths(reader, mixed, table_id)
    coded = sorted((length, symbol) for symbol, length in lengths.items() if length)
    require(all(length <= MAX_LENGTH for length, _ in coded), "Corrupt", "a code above 8 bits")
    total = sum(1 << (MAX_LENGTH - length) for length, _ in coded)
    require(total == 1 << MAX_LENGTH, "Corrupt", "not a complete code")
    symbols, code, before = {}, 0, 0
    for length, symbol in coded:
        code <<= length - before
        as_read = int(format(code, f"0{length}b")[::-1], 2)
        symbols[length, as_read] = symbol
        code, before = code + 1, length
    return Table(symbols, mixed, cut)


class Lane:
    """The unread bits of one lane."""

    def __init__(self, state: int) -> None:
        """Find the end bit of a state."""
        self.count = state.bit_length() - 1
        require(self.count >= 16, "Corrupt", "a lane of fewer than 16 bits")
        self.bits = state - (1 << self.count)

    def take(self, count: int) -> int:
        """Take a number, the lowest bit first."""
        value = self.bits & ((1 << count) - 1)
        self.bits >>= count
        self.count -= count
        return value


def read_symbol(lane: Lane, table: Table) -> int:
    """Read a code, and the exponent behind an escape."""
    length = 1
    while (length, lane.bits & ((1 << length) - 1)) not in table.symbols:
        length += 1
    symbol = table.symbols[length, lane.take(length)]
    if symbol < ESCAPES:
        return symbol
    level, exponent = symbol - ESCAPES, lane.take(8)
    meant = 4 * exponent + level
    require(not table.has_code(meant), "Corrupt", "an escape for what has a code")
    exists = level <= 1 if exponent == 0 else level == 0 or exponent < 255
    require(exists, "Corrupt", "an escape for what doesn't exist")
    return meant


def read_symbols(reader: ByteReader, table: Table, count: int) -> list[int]:
    """Read words, lanes and with them the symbols of a block."""
    lanes = 64
    while lanes > 1 and lanes > count / 256:
        lanes //= 2
    word_count = reader.number(2)
    all_lanes = [Lane(state) for state in struct.unpack(f"<{lanes}I", reader.take(4 * lanes))]
    words = list(struct.unpack(f"<{word_count}H", reader.take(2 * word_count)))[::-1]
    symbols = []
    for element in range(count):
        lane = all_lanes[element % lanes]
        symbols.append(read_symbol(lane, table))
        if lane.count < 16:
            require(bool(words), "Truncated", "a word that isn't there")
            lane.bits |= words.pop() << lane.count
            lane.count += 16
    require(not words, "Corrupt", "words left over")
    for lane in all_lanes:
        require(lane.count == 16 and lane.bits == 0, "Corrupt", "a lane that doesn't end empty")
    return symbols


def decode_block(data: bytes, table: Table, count: int) -> np.ndarray:
    """Decode a coded block behind its mode byte."""
    reader = ByteReader(data)
    symbols = read_symbols(reader, table, count)
    widths = [table.width(symbol) for symbol in symbols]
    mantissas = reader.rest()
    size = -(-sum(widths) // 8)
    require(len(mantissas) >= size, "Truncated", "a missing mantissa")
    require(len(mantissas) <= size, "Corrupt", "bytes after the last mantissa")
    stream = int.from_bytes(mantissas, "little")
    bits = []
    for symbol, width in zip(symbols, widths, strict=True):
        value = (stream & ((1 << width) - 1)) << (24 - width)
        require(symbol != TINY or value > 0, "Corrupt", "+0 among the tiny values")
        bits.append((value >> 23) << 31 | (symbol >> 2) << 23 | (value & 0x7FFFFF))
        stream >>= width
    require(stream == 0, "Corrupt", "set bits after the last mantissa")
    return np.array(bits, "<u4").view("<f4")


def plain_values(mode: int, data: bytes, count: int) -> np.ndarray:
    """Give stored values (mode 0) or zeros (mode 1)."""
    size = 0 if mode else 4 * count
    require(len(data) >= size, "Truncated", "fewer bytes than values")
    require(len(data) <= size, "Corrupt", "bytes after the last value")
    return np.zeros(count, "<f4") if mode else np.frombuffer(data, "<f4")


def decode(coded: Coded) -> np.ndarray:
    """Decode a chunk."""
    chunk, n = coded.chunk, coded.count
    head = chunk[0]
    mode, cut, table_id = head & 3, head >> 2 & 3, head >> 4
    require(table_id <= 3 and (mode == 2 or head == mode), "Corrupt", "first byte of a chunk")
    if mode < 2:
        return plain_values(mode, chunk[1:], n)
    reader = ByteReader(chunk)
    reader.take(1)
    table = read_table(reader, mode == 3, cut, table_id)
    blocks = -(-n // BLOCK)
    ends = [reader.number(4) for _ in range(blocks - 1)]
    area = reader.rest()
    values = []
    for number, (begin, end) in enumerate(zip([0, *ends], [*ends, len(area)], strict=True)):
        require(end <= len(area) and begin < len(area), "Truncated", "a block beyond the chunk")
        require(begin < end, "Corrupt", "ends of blocks that don't grow")
        block, count = area[begin:end], min(BLOCK, n - number * BLOCK)
        require(block[0] <= 2, "Corrupt", "block mode")
        if block[0] == 2:
            values.append(decode_block(block[1:], table, count))
        else:
            values.append(plain_values(block[0], block[1:], count))
    return np.concatenate(values)


def check(given: Mapping[str, str]) -> None:
    """Check that what keeps every bit cuts none."""
    together = given["lossless"] == "off" or given["cut"] == "0"
    require(together, "Corrupt", "lossless=on with another cut than 0")


CODEC = Codec(
    "gcomp",
    5,
    decode,
    chunk_elements=262144,
    parameters={"cut": one_of("auto", "0", "6", "12", "18"), "lossless": SWITCH},
    check=check,
)

COUNT = 20000  # two blocks
CUTS = (18, 12, 6)


def inputs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Give values of all exponents, and significances around the places where levels begin."""
    random = np.random.default_rng(seed)
    values = random.integers(0, 2**32, COUNT, dtype=np.uint32)
    # Enough of one exponent to be coded, not stored.
    common = random.random(COUNT) < 0.8
    values[common] = (values[common] & 0x807FFFFF) | np.uint32(120 << 23)
    values[::3] = (values[::3] & 0xFFFC0000) | np.uint32(1 << 17)  # ties
    exponents = (values >> 23 & 255).astype(np.int64)
    above = (exponents + random.integers(-1, 20, COUNT)).clip(0, 255).astype(np.uint32)
    seen = (above << 23) | (random.integers(0, 2, COUNT, dtype=np.uint32) << 31)
    seen[::5] |= random.integers(0, 2**23, seen[::5].size, dtype=np.uint32)
    return values.view(np.float32), seen.view(np.float32)


def kept(bits: int, seen: float) -> int:
    """Cut one value as the specification says, in whole numbers."""
    exponent = bits >> 23 & 255
    if exponent == 0:
        return 0
    if exponent >= 254:
        return bits
    for cut in CUTS:
        if abs(seen) >= 2.0 ** (cut - 1 + exponent - 127):  # false for NaN
            steps, rest = divmod(bits, 1 << cut)
            up = 2 * rest > 1 << cut or (2 * rest == 1 << cut and steps % 2 == 1)
            return (steps + up) << cut
    return bits


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_levels_and_rounding(seed: int) -> None:
    """Values of every exponent and level, through a coded chunk of two blocks (section 6.2)."""
    import deltawire
    from spec_decoder import decode_file

    values, seen = inputs(seed)
    file = deltawire.encode(values, "gcomp", significance=seen)
    assert len(file) < 3.5 * COUNT, "stored, not coded"
    decoded = decode_file(file)
    pairs = zip(values.view(np.uint32).tolist(), map(float, seen), strict=True)
    expected = np.array([kept(bits, number) for bits, number in pairs], np.uint32)
    assert decoded.view(np.uint32).tolist() == expected.tolist()
