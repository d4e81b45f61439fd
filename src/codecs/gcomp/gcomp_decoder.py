"""gcomp, decoded as its spec.md says, one chunk at a time; and what it keeps of a value."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from spec_codec import SWITCH, Codec, Coded, one_of
from spec_hashes import DecodeError, require

BLOCK = 32768
MAX_LENGTH = 8
WINDOW = 30
STATIC_TABLES = {
    1: ([5, 2, 2, 2, 3, 5, 5, 7, 8, 8, 8, 8], 8, 8),
    2: ([6, 3, 2, 2, 3, 3, 4, 6, 7, 7, 8, 8], 8, 8),
    3: ([7, 4, 3, 3, 4, 4, 6, 6, 7, 8, 8, 8], 8, 1),
}

# Symbols in the order in which codes of equal length are given: (level, exponent), and three more.
Symbol = tuple[int, int]
ZERO, ESCAPE, TINY = (-1, 0), (0, 256), (0, 257)


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


class BackwardReader:
    """Takes numbers from the end of some bytes. What isn't there is 0, and `missing` then set."""

    def __init__(self, data: bytes) -> None:
        """Begin behind the last byte."""
        self.left = len(data)
        self.missing = False
        self._data = data

    def number(self, size: int) -> int:
        """Take a number of `size` bytes."""
        if size > self.left:
            self.missing = True
            return 0
        self.left -= size
        return int.from_bytes(self._data[self.left : self.left + size], "little")


@dataclass(frozen=True)
class Table:
    """Codes by (length, bits as read, first one lowest)."""

    symbols: dict[tuple[int, int], Symbol]
    whole: bool
    widths: tuple[int, int]

    @property
    def in_bytes(self) -> bool:
        """Whether signs and mantissas are whole bytes."""
        return self.whole and self.widths == FLOAT32

    def may_escape(self, exponent: int) -> bool:
        """Tell whether an escape may stand for an exponent."""
        if exponent == 0:
            return self.whole and TINY not in self.symbols.values()
        return (0, exponent) not in self.symbols.values()


# Bits of sign and mantissa at level 0, and how many fewer each further level has.
FLOAT32 = (24, 3)
HALVES = {1: (8, 1), 2: (11, 1)}  # by the number in a chunk's first byte: bfloat16, float16


def width(symbol: Symbol, widths: tuple[int, int]) -> int:
    """Give the bits of sign and mantissa that follow."""
    return 0 if symbol == ZERO else widths[0] - widths[1] * symbol[0]


def read_window(reader: ByteReader, level: int, lengths: dict[Symbol, int]) -> list[int]:
    """Read the lengths of the exponents of one level; give these."""
    count, first = reader.number(), reader.number()
    last = 254 if level else 255
    fits = 1 <= count <= WINDOW and first >= 1 and first + count - 1 <= last
    require(fits, "Corrupt", "window out of range")
    packed = reader.take(-(-count // 2))
    nibbles = [nibble for byte in packed for nibble in (byte & 15, byte >> 4)]
    require(not any(nibbles[count:]), "Corrupt", "a nibble left over")
    require(nibbles[0] > 0 and nibbles[count - 1] > 0, "Corrupt", "a window with an unused end")
    for place in range(count):
        lengths[level, first + place] = nibbles[place]
    return [first, first + count - 1]


def read_lengths(reader: ByteReader, whole: bool, level: int, table_id: int) -> dict[Symbol, int]:
    """Read the lengths of a table, by symbol."""
    if table_id:
        top = reader.number()
        require(12 <= top <= 254, "Corrupt", "top of a static table")
        exponents, escape, zero = STATIC_TABLES[table_id]
        lengths = {(level, top - place): length for place, length in enumerate(exponents)}
        return lengths | {ESCAPE: escape, ZERO: zero}
    both = reader.number()
    lengths = {ESCAPE: both & 15, ZERO: both >> 4}
    if whole:
        lengths[TINY] = reader.number()
        require(lengths[TINY] < 16, "Corrupt", "a nibble left over")
    levels = reader.number()
    require(levels <= 1 or not whole, "Corrupt", "levels of a whole chunk")
    ends = []
    for present in range(8):
        if levels >> present & 1:
            ends += read_window(reader, present, lengths)
    require(not ends or max(ends) - min(ends) < WINDOW, "Corrupt", "exponents too far apart")
    return lengths


def read_table(
    reader: ByteReader, whole: bool, level: int, table_id: int, widths: tuple[int, int]
) -> Table:
    """Read a table and give its symbols their canonical codes."""
    lengths = read_lengths(reader, whole, level, table_id)
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
    return Table(symbols, whole, widths)


class Lane:
    """The unread bits of one lane."""

    def __init__(self, state: int, least: int) -> None:
        """Find the end bit of a state."""
        self.count = state.bit_length() - 1
        require(self.count >= least, "Corrupt", "a lane with too few bits, or no end bit")
        self.bits = state - (1 << self.count)

    def take(self, count: int) -> int:
        """Take a number, the lowest bit first."""
        value = self.bits & ((1 << count) - 1)
        self.bits >>= count
        self.count -= count
        return value

    def put(self, value: int, count: int) -> None:
        """Put unread bits above the others."""
        self.bits |= value << self.count
        self.count += count

    def read_symbol(self, table: Table) -> Symbol:
        """Read a code."""
        length = 1
        while (length, self.bits & ((1 << length) - 1)) not in table.symbols:
            length += 1
        return table.symbols[length, self.take(length)]


def read_stretch(
    codes: list[Lane], mantissas: list[Lane], table: Table, stream: BackwardReader, count: int
) -> list[int]:
    """Read the elements between two refills; give their bits."""
    symbols = [codes[place % len(codes)].read_symbol(table) for place in range(count)]
    exponents = [0 if symbol in (ZERO, TINY) else symbol[1] for symbol in symbols]
    legal = True
    for place in reversed(range(count)):
        if symbols[place] == ESCAPE:
            exponents[place] = stream.number(1)
            legal &= table.may_escape(exponents[place])
    for lane in reversed(codes):
        if lane.count < 16:
            lane.put(stream.number(2), 16)
    values = [0] * count
    for place in reversed(range(count)):
        bits = width(symbols[place], table.widths)
        if not mantissas:
            number = stream.number(bits // 8)
        else:
            lane = mantissas[place % len(mantissas)]
            if lane.count < bits:
                lane.put(stream.number(4), 32)
            number = lane.take(bits)
        number <<= 24 - bits
        values[place] = (number >> 23) << 31 | exponents[place] << 23 | (number & 0x7FFFFF)
        legal &= bool(mantissas) or symbols[place] == ZERO or values[place] != 0
    require(not stream.missing, "Truncated", "a byte that isn't there")
    require(legal, "Corrupt", "an escape that may not be, or +0 among the tiny values")
    return values


def decode_block(data: bytes, table: Table, count: int) -> np.ndarray:
    """Decode a coded block."""
    lanes = 64
    while lanes > 1 and lanes > count / 64:
        lanes //= 2
    mantissa_lanes = 0 if table.in_bytes else max(1, lanes // 4)
    reader = ByteReader(data)
    stream = BackwardReader(reader.take(reader.number(3) >> 2))
    states = struct.unpack(f"<{lanes + mantissa_lanes}I", reader.take(4 * (lanes + mantissa_lanes)))
    require(not reader.rest(), "Corrupt", "bytes behind the lanes")
    codes = [Lane(state, 16) for state in states[:lanes]]
    mantissas = [Lane(state, 0) for state in states[lanes:]]
    values: list[int] = []
    while len(values) < count:
        left = min(2 * lanes, count - len(values))
        values += read_stretch(codes, mantissas, table, stream, left)
    require(stream.left == 0, "Corrupt", "bytes left over in the stream")
    ends = [lane.bits == 0 and lane.count == 16 for lane in codes]
    ends += [lane.count == 0 for lane in mantissas]
    require(all(ends), "Corrupt", "a lane that doesn't end empty")
    return np.array(values, "<u4").view("<f4")


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
    mode, level, table_id = head & 3, head >> 2 & 7, head >> 5 & 3
    widths = HALVES.get(level) if head >> 7 else FLOAT32
    if head >> 7:
        given = {"values": "fp32", "lossless": "off"} | coded.parameters
        of_halves = given["values"] != "fp32" and mode == (2 if given["lossless"] == "on" else 3)
        known = of_halves and table_id == 0 and widths is not None
        level = 0
    else:
        known = table_id == 0 or mode >= 2
        known = known and (level > 0) == (mode == 3 and table_id > 0)
    require(known, "Corrupt", "first byte of a chunk")
    if mode < 2:
        return plain_values(mode, chunk[1:], n)
    reader = ByteReader(chunk)
    reader.take(1)
    table = read_table(reader, mode == 2, level, table_id, widths)
    blocks = -(-n // BLOCK)
    ends = [reader.number(4) for _ in range(blocks - 1)]
    area = reader.rest()
    values = []
    for number, (begin, end) in enumerate(zip([0, *ends], [*ends, len(area)], strict=True)):
        require(end <= len(area) and begin < len(area), "Truncated", "a block beyond the chunk")
        require(begin < end, "Corrupt", "ends of blocks that don't grow")
        block, count = area[begin:end], min(BLOCK, n - number * BLOCK)
        require(block[0] <= 1 or block[0] & 3 == 2, "Corrupt", "block mode")
        if block[0] & 3 == 2:
            values.append(decode_block(block, table, count))
        else:
            values.append(plain_values(block[0], block[1:], count))
    return np.concatenate(values)


def check(given: Mapping[str, str]) -> None:
    """Check that what keeps every bit cuts none."""
    together = given["lossless"] == "off" or given["cut"] == "0"
    require(together, "Corrupt", "lossless=on with another cut than 0")
    named = given["levels"] == "8" or given["cut"] == "auto"
    require(named, "Corrupt", "levels=4 with another cut than auto")


CODEC = Codec(
    "gcomp",
    5,
    decode,
    chunk_elements=262144,
    parameters={
        "cut": one_of("auto", "0", "6", "12", "18"),
        "levels": one_of("8", "4"),
        "lossless": SWITCH,
        "values": one_of("fp32", "bf16", "fp16"),
    },
    later={"values": "fp32"},
    check=check,
)


def escaped(exponent: int) -> Coded:
    """Make a part of one value, an escape, with a table in which exponent 127 has a code."""
    table = bytes([2, 0x01, 0, 1, 1, 127, 0x01])
    stream = (0x400000).to_bytes(3, "little") + bytes([exponent])
    block = (2 + 4 * len(stream)).to_bytes(3, "little") + stream
    return Coded([table + block + (1 << 17 | 1).to_bytes(4, "little")], 1)


def test_escapes() -> None:
    """An encoder has them in long parts alone, and never for what has a code."""
    assert [decode(escaped(exponent))[0] for exponent in (126, 0)] == [0.75, 2.0**-127]
    with pytest.raises(DecodeError):
        decode(escaped(127))


COUNT = 40000  # two blocks
# By the number of levels, and the type of values.
CUTS = {
    (8, "fp32"): (21, 18, 15, 12, 9, 6, 3),
    (4, "fp32"): (18, 12, 6),
    (8, "bf16"): (23, 22, 21, 20, 19, 18, 17),
    (4, "bf16"): (22, 20, 18),
    (8, "fp16"): (20, 19, 18, 17, 16, 15, 14),
}
UNUSED = {"fp32": 0, "bf16": 16, "fp16": 13}  # low bits of the mantissa


def inputs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Give values of all exponents, and significances around the places where levels begin."""
    random = np.random.default_rng(seed)
    values = random.integers(0, 2**32, COUNT, dtype=np.uint32)
    # Enough of one exponent to be coded, not stored.
    common = random.random(COUNT) < 0.8
    values[common] = (values[common] & 0x807FFFFF) | np.uint32(120 << 23)
    values[::3] = (values[::3] & 0xFFFC0000) | np.uint32(1 << 17)  # ties
    exponents = (values >> 23 & 255).astype(np.int64)
    above = (exponents + random.integers(-1, 24, COUNT)).clip(0, 255).astype(np.uint32)
    seen = (above << 23) | (random.integers(0, 2, COUNT, dtype=np.uint32) << 31)
    seen[::5] |= random.integers(0, 2**23, seen[::5].size, dtype=np.uint32)
    return values.view(np.float32), seen.view(np.float32)


def kept(bits: int, seen: float, cuts: tuple[int, ...]) -> int:
    """Cut one value as the specification says, in whole numbers."""
    exponent = bits >> 23 & 255
    if exponent == 0:
        return 0
    if exponent >= 254:
        return bits
    for cut in cuts:
        if abs(seen) >= 2.0 ** (cut - 1 + exponent - 127):  # false for NaN
            steps, rest = divmod(bits, 1 << cut)
            up = 2 * rest > 1 << cut or (2 * rest == 1 << cut and steps % 2 == 1)
            return (steps + up) << cut
    return bits


@pytest.mark.parametrize(("levels", "kind"), CUTS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_levels_and_rounding(seed: int, levels: int, kind: str) -> None:
    """Values of every exponent and level, through a coded chunk of two blocks (section 6.2)."""
    import deltawire
    from spec_decoder import decode_file

    values, seen = inputs(seed)
    patterns = values.view(np.uint32)
    patterns &= np.uint32(2**32 - 2 ** UNUSED[kind])
    patterns[np.isnan(values)] |= 1 << 22  # rounding makes every NaN a quiet one
    if kind == "fp16":  # its exponents, of normal numbers
        patterns |= np.uint32(0x38800000)
        patterns &= np.uint32(0xBFFFFFFF)
        patterns[patterns & 0x7FFFFFFF > 0x477FE000] = 0x38800000
    file = deltawire.encode(values, f"gcomp:levels={levels},values={kind}", significance=seen)
    assert len(file) < 3.5 * COUNT, "stored, not coded"
    decoded = decode_file(file)
    pairs = zip(values.view(np.uint32).tolist(), map(float, seen), strict=True)
    cuts = CUTS[levels, kind]
    expected = np.array([kept(bits, number, cuts) for bits, number in pairs], np.uint32)
    assert decoded.view(np.uint32).tolist() == expected.tolist()
