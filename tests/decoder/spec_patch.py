"""Patches, read as src/patch/spec.md says and not as the C++ does it."""

import struct
from collections.abc import Iterator

import numpy as np
from spec_bits import BitReader
from spec_hashes import DecodeError, crc32c, require, xxh64

# By type: the bytes of an element, the lowest bit of its exponent, the exponent's bits.
TYPES = {
    1: (4, 23, 8),
    2: (2, 7, 8),
    3: (2, 10, 5),
    4: (1, 3, 4),
    5: (1, 2, 5),
    6: (1, 0, 0),
    7: (2, 0, 0),
    8: (4, 0, 0),
}
HEAD_BYTES = 56
CLASSES = 12
MOST_ELEMENTS = 2**40
PLAIN, BY_CLASS, FULL = 0, 1, 3
PARAMETER_BOUNDS = (
    *(6408339, 3587935, 1902590, 980559, 497874, 250890, 125940, 63094),
    *(31579, 15797, 7900, 3951, 1975, 988, 494, 247),
)


class Near:
    """Numbers of one kind, each coded by its distance from the one before."""

    def __init__(self, first: int, most: int) -> None:
        """Begin near `first`."""
        self._before, self._most = first, most

    def take(self, bits: BitReader) -> int:
        """The next number."""
        distance = 0
        while distance < 12 and bits.bit():
            distance += 1
        step = -((distance + 1) // 2) if distance % 2 else distance // 2
        number = self._before + step
        if distance == 12:
            number = bits.number(6)
            far = abs(2 * (number - self._before) + (number < self._before)) >= 12
            require(far, "Corrupt", "a near number in the code of far ones")
        require(0 <= number <= self._most, "Corrupt", "a number out of range")
        self._before = number
        return number

    def count(self, bits: BitReader) -> int:
        """The next count, of which the width is near the one before."""
        width = self.take(bits)
        return width if width < 2 else (1 << (width - 1)) | bits.number(width - 1)


def positions(bits: BitReader, count: int, total: int) -> list[int]:
    """The positions of `count` among `total`."""
    others = 2 * count > total
    some = total - count if others else count
    parameter = 0
    for bound in PARAMETER_BOUNDS:
        if some << 24 >= total * bound:
            break
        parameter += 1
    found, after = [], 0
    for _ in range(some):
        found.append(after + bits.rice(parameter, 16))
        require(found[-1] < total, "Corrupt", "a position behind the last one")
        after = found[-1] + 1
    return sorted(set(range(total)) - set(found)) if others else found


def steps(bits: BitReader, count: int, width: int, long: Near, parameters: Near) -> list[int]:
    """The steps of a class's changes."""
    signs = [-1 if bits.bit() else 1 for _ in range(count)]
    lengths = [1] * count
    longer = long.count(bits)
    require(longer <= count, "Corrupt", "more long steps than steps")
    if longer:
        places = positions(bits, longer, count)
        parameter = parameters.take(bits)
        for place in places:
            lengths[place] = 2 + bits.rice(parameter, width)
            most = 2 ** (width - 1) - (signs[place] > 0)
            require(lengths[place] <= most, "Corrupt", "a step that no weight can take")
    return [sign * length for sign, length in zip(signs, lengths, strict=True)]


def classes(old: np.ndarray, kind: int, top: int) -> np.ndarray:
    """The class of each old weight."""
    _, shift, width = TYPES[kind]
    exponents = (old.astype(np.int64) >> shift) & (2**width - 1)
    return np.clip(top - exponents, 0, CLASSES - 1)


def stepped(pattern: int, step: int, kind: int) -> int:
    """The pattern that is so many steps further in the order of values."""
    size, _, exponent = TYPES[kind]
    high, mask = 1 << (8 * size - 1), (1 << (8 * size)) - 1
    if not exponent:
        return (pattern + step) & mask
    order = pattern ^ mask if pattern & high else pattern | high
    order = (order + step) & mask
    return order ^ high if order & high else order ^ mask


def chunk(code: bytes, old: np.ndarray, kind: int) -> np.ndarray:
    """The new weights of a changed chunk."""
    size, _, exponent = TYPES[kind]
    bits = BitReader(code)
    form = bits.number(2)
    if form == FULL:
        require(len(code) >= 1 + old.nbytes, "Truncated", "a full chunk ends early")
        require(len(code) == 1 + old.nbytes and code[0] == FULL, "Corrupt", "a full chunk's rest")
        return np.frombuffer(code, old.dtype, offset=1)
    require(form == PLAIN or (form == BY_CLASS and exponent > 0), "Corrupt", "an unknown form")
    members = [np.arange(old.size)]
    if form == BY_CLASS:
        top = bits.number(8)
        require(top < 2**exponent, "Corrupt", "a top that is no exponent")
        of = classes(old, kind, top)
        members = [np.flatnonzero(of == each) for each in range(CLASSES)]
    widths, long, parameters = Near(4, 17), Near(4, 17), Near(0, 31)
    counts = [widths.count(bits) for _ in members]
    require(0 < sum(counts) <= old.size, "Corrupt", "no changes, or too many")
    new = old.copy()
    for count, places in zip(counts, members, strict=True):
        if count == 0:
            continue
        require(count <= len(places), "Corrupt", "more changes than members")
        changed = places[positions(bits, count, len(places))]
        for place, step in zip(
            changed, steps(bits, count, 8 * size, long, parameters), strict=True
        ):
            new[place] = stepped(int(old[place]), step, kind)
    bits.finish()
    return new


def digest(weights: np.ndarray, chunk_elements: int) -> int:
    parts = range(0, weights.size, chunk_elements)
    each = [xxh64(weights[i : i + chunk_elements].tobytes()) for i in parts]
    return xxh64(struct.pack(f"<{len(each)}Q", *each))


def numbers(table: bytes) -> Iterator[int]:
    """The table's numbers."""
    while table:
        ends = [i for i, byte in enumerate(table[:10]) if byte < 128]
        require(bool(ends), "Corrupt", "a number that is cut off")
        taken, table = table[: ends[0] + 1], table[ends[0] + 1 :]
        require(len(taken) == 1 or taken[-1] != 0, "Corrupt", "a number longer than it needs")
        value = sum((byte & 127) << (7 * i) for i, byte in enumerate(taken))
        require(value < 2**64, "Corrupt", "a number of more than 64 bits")
        yield value


def codes(table: bytes, payload: bytes, chunks: int) -> dict[int, bytes]:
    """The codes of the changed chunks."""
    found: dict[int, bytes] = {}
    at, after_run = 0, False
    for entry in numbers(table):
        unchanged, number = entry & 1, (entry >> 1) + 1
        require(not (unchanged and after_run), "Corrupt", "two runs in a row")
        require((number if unchanged else 1) <= chunks - at, "Corrupt", "too many chunks")
        if not unchanged:
            require(number <= len(payload), "Corrupt", "too few bytes for a chunk")
            found[at], payload = payload[:number], payload[number:]
        at += number if unchanged else 1
        after_run = bool(unchanged)
    require(at == chunks and not payload, "Corrupt", "chunks or bytes are left over")
    return found


def apply(patch: bytes, old_bytes: bytes, kind: int) -> bytes:
    """The new weights, from the patch and the old ones of the type `kind`."""
    require(len(patch) >= HEAD_BYTES, "Truncated", "a head that is cut off")
    require(patch[:8] == b"DWPATCH\n", "Corrupt", "another magic")
    fields = struct.unpack_from("<HBBIQQQQII", patch, 8)
    version, found_kind, chunk_bits, table_bytes, elements, payload_bytes = fields[:6]
    require(version == 1, "UnsupportedVersion", "another version")
    require(crc32c(patch[:52]) == fields[9], "Corrupt", "the head's checksum")
    require(found_kind in TYPES and 6 <= chunk_bits <= 16, "Corrupt", "type or chunk_bits")
    require(elements <= MOST_ELEMENTS, "Limit", "too many elements")
    body = patch[HEAD_BYTES:]
    require(table_bytes + payload_bytes <= len(body), "Truncated", "a body that is cut off")
    require(table_bytes + payload_bytes == len(body), "Corrupt", "bytes behind the body")
    require(crc32c(body) == fields[8], "Corrupt", "the body's checksum")
    size = 1 << chunk_bits
    coded = codes(body[:table_bytes], body[table_bytes:], -(-elements // size))
    fits = found_kind == kind and elements * TYPES[kind][0] == len(old_bytes)
    require(fits, "Mismatch", "another tensor")
    old = np.frombuffer(old_bytes, f"<u{TYPES[kind][0]}")
    require(digest(old, size) == fields[6], "Mismatch", "other old weights")
    new = old.copy()
    for number, code in coded.items():
        begin = number * size
        new[begin : begin + size] = chunk(code, old[begin : begin + size], kind)
    require(digest(new, size) == fields[7], "Corrupt", "other new weights")
    return new.tobytes()


__all__ = ["DecodeError", "apply", "digest"]
