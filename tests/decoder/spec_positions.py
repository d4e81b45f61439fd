"""Positions in chunks, as the documents of the sparse codecs have them (sbc's spec, section 2)."""

import struct

from spec_bits import BitReader
from spec_hashes import require

FULL_CHUNK = 16384
PARAMETER_LIMIT = 24
HEAD_BYTES = 7
INTERPOLATIVE = 31
INTERPOLATIVE_HEAD = 11


def chunk_positions(chunk: bytes, begin: int, count: int) -> list[int]:
    """Give the positions of a chunk, which must lie in [begin, count)."""
    require(len(chunk) >= 3, "Truncated", "the end inside a chunk's head")
    code, positions = struct.unpack_from("<BH", chunk)
    require(positions <= FULL_CHUNK, "Corrupt", f"{positions} positions")
    require(positions > 1 or code == 0, "Corrupt", "a code for no gaps")
    if positions == 0:
        require(len(chunk) == 3, "Corrupt", "bytes after an empty chunk")
        return []
    if code == INTERPOLATIVE:
        return interpolated(chunk, positions, begin, count)
    return from_gaps(chunk, begin, count)


def from_gaps(chunk: bytes, begin: int, count: int) -> list[int]:
    """Give positions that are coded as Rice codes of the gaps between them."""
    code, positions = struct.unpack_from("<BH", chunk)
    b, lanes = code & 31, 1 << (code >> 5)
    require(b <= PARAMETER_LIMIT, "Corrupt", f"Rice parameter {b}")
    require(lanes in (1, 4, 8), "Corrupt", f"{lanes} lanes")
    streams = lane_streams(chunk, lanes)
    (position,) = struct.unpack_from("<I", chunk, 3)
    require(begin <= position < count, "Corrupt", "the first position is out of order or range")
    found = [position]
    for gap in range(positions - 1):
        position += 1 + streams[gap % lanes].rice(b, 32)
        require(position < count, "Corrupt", "a position beyond the part")
        found.append(position)
    for stream in streams:
        stream.finish()
    return found


def lane_streams(chunk: bytes, lanes: int) -> list[BitReader]:
    """Cut the chunk's rest into its lanes."""
    at = HEAD_BYTES + 2 * (lanes - 1)
    require(len(chunk) >= at, "Truncated", "the end inside a chunk's head")
    streams = []
    for size in struct.unpack_from(f"<{lanes - 1}H", chunk, HEAD_BYTES):
        require(size <= len(chunk) - at, "Truncated", "the end inside a lane")
        streams.append(BitReader(chunk[at : at + size]))
        at += size
    return [*streams, BitReader(chunk[at:])]


def interpolated(chunk: bytes, positions: int, begin: int, count: int) -> list[int]:
    """Give positions of which each is coded between its neighbours."""
    require(len(chunk) >= INTERPOLATIVE_HEAD, "Truncated", "the end inside a chunk's head")
    first, last = struct.unpack_from("<II", chunk, 3)
    require(begin <= first < count, "Corrupt", "the first position is out of order or range")
    require(last < count, "Corrupt", "the last position is beyond the part")
    require(last - first >= positions - 1, "Corrupt", "no room for the positions")
    stream = BitReader(chunk[INTERPOLATIVE_HEAD:])
    inner = between(stream, positions - 2, first + 1, last - 1)
    stream.finish()
    return [first, *inner, last]


def between(stream: BitReader, positions: int, low: int, high: int) -> list[int]:
    """Give so many positions in [low, high]: the middle one, then those below, then those above."""
    if positions == 0:
        return []
    below = positions // 2
    places = high - low + 1 - (positions - 1)
    middle = low + below + place_among(stream, places)
    lower = between(stream, below, low, middle - 1)
    return [*lower, middle, *between(stream, positions - below - 1, middle + 1, high)]


def place_among(stream: BitReader, places: int) -> int:
    """Take one of so many places: the middle ones have the shorter codes."""
    bits = places.bit_length() - 1
    shorter = 2 ** (bits + 1) - places
    number = stream.number(bits)
    if number >= shorter:
        number = 2 * number + stream.bit() - shorter
    return (number + (places - shorter) // 2) % places
