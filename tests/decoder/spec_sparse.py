"""Parts of positions and values, as topk's spec.md has them (sections 1 to 3)."""

import struct

import numpy as np
from spec_codec import Coded, one_of
from spec_hashes import require
from spec_positions import FULL_CHUNK, chunk_positions
from spec_values import FORMAT, WIDTHS, check_step, decoded

POSITIONS = one_of("golomb", "auto")
PARAMETERS = {"values": FORMAT, "positions": POSITIONS}


def decode(coded: Coded) -> np.ndarray:
    """Put the values at their positions, and 0 elsewhere."""
    kind, step = coded.parameters["values"], coded.scalars[0]
    check_step(kind, step)
    values = np.zeros(coded.count, "<f4")
    begin = 0
    for number, chunk in enumerate(coded.chunks):
        require(len(chunk) >= 3, "Truncated", "the end inside a chunk's head")
        (count,) = struct.unpack_from("<H", chunk, 1)
        require(count <= FULL_CHUNK, "Corrupt", f"{count} positions")
        split = len(chunk) - count * WIDTHS[kind]
        require(split >= 3, "Truncated", "the end inside the values")
        found = chunk_positions(chunk[:split], begin, coded.count)
        sent = decoded(chunk[split:], kind, step)
        is_last = number == len(coded.chunks) - 1
        require(is_last or count == FULL_CHUNK, "Corrupt", "a short chunk before the last")
        require(bool(found) or (number == 0 and step == 0), "Corrupt", "an empty chunk, or a step")
        values[found] = sent + np.float32(0)  # -0 is not written
        begin = found[-1] + 1 if found else 0
    return values
