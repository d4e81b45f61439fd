"""The codec sbc, decoded as its spec.md says, all chunks of a part together."""

import struct

import numpy as np
from spec_bits import BitReader
from spec_hashes import require

FULL_CHUNK = 16384
UNARY_LIMIT = 24
PARAMETER_LIMIT = 24
HEAD_BYTES = 7


def check_mean(scalar: int) -> None:
    """Check that the mean is finite and not -0."""
    require(scalar & 0x7FFFFFFF < 0x7F800000, "Corrupt", "the mean is infinite or NaN")
    require(scalar != 0x80000000, "Corrupt", "the mean is -0")


def decode_sbc(chunks: list[bytes], count: int, scalar: int) -> np.ndarray:
    """Put the mean at the positions that the chunks list, and 0 elsewhere."""
    positions: list[int] = []
    for number, chunk in enumerate(chunks):
        found = chunk_positions(chunk, positions[-1] + 1 if positions else 0, count)
        is_last = number == len(chunks) - 1
        require(is_last or len(found) == FULL_CHUNK, "Corrupt", "a short chunk before the last")
        require(bool(found) or number == 0, "Corrupt", "an empty chunk beside others")
        positions += found
    require(bool(positions) == (scalar != 0), "Corrupt", "a mean of nothing, or none of something")
    values = np.zeros(count, "<f4")
    values[positions] = np.frombuffer(struct.pack("<I", scalar), "<f4")[0]
    return values


def chunk_positions(chunk: bytes, begin: int, count: int) -> list[int]:
    """Give the positions of a chunk, which must lie in [begin, count)."""
    require(len(chunk) >= 3, "Truncated", "the end inside a chunk's head")
    code, positions = struct.unpack_from("<BH", chunk)
    b, lanes = code & 31, 1 << (code >> 5)
    require(b <= PARAMETER_LIMIT, "Corrupt", f"Rice parameter {b}")
    require(lanes in (1, 4, 8), "Corrupt", f"{lanes} lanes")
    require(positions <= FULL_CHUNK, "Corrupt", f"{positions} positions")
    require(positions > 1 or code == 0, "Corrupt", "a code for no gaps")
    if positions == 0:
        require(len(chunk) == 3, "Corrupt", "bytes after an empty chunk")
        return []
    streams = lane_streams(chunk, lanes)
    (position,) = struct.unpack_from("<I", chunk, 3)
    require(begin <= position < count, "Corrupt", "the first position is out of order or range")
    found = [position]
    for gap in range(positions - 1):
        position += 1 + read_gap(streams[gap % lanes], b)
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


def read_gap(stream: BitReader, b: int) -> int:
    """Read one gap: Rice code or escape."""
    ones = 0
    while ones < UNARY_LIMIT and stream.bit():
        ones += 1
    if ones < UNARY_LIMIT:
        return (ones << b) | stream.number(b)
    gap = stream.number(32)
    require(gap >> b >= UNARY_LIMIT, "Corrupt", "an escape for a gap that has a code")
    return gap
