"""sbc, decoded as its spec.md says, all chunks of a part together."""

import numpy as np
from spec_codec import SHARE, Codec, Coded, of_means
from spec_hashes import require
from spec_positions import FULL_CHUNK, chunk_positions
from spec_sparse import POSITIONS


def decode(coded: Coded) -> np.ndarray:
    """Put the mean at the positions that the chunks list, and 0 elsewhere."""
    scalar = coded.scalars[0]
    require(scalar & 0x7FFFFFFF < 0x7F800000, "Corrupt", "the mean is infinite or NaN")
    require(scalar != 0x80000000, "Corrupt", "the mean is -0")
    positions: list[int] = []
    for number, chunk in enumerate(coded.chunks):
        found = chunk_positions(chunk, positions[-1] + 1 if positions else 0, coded.count)
        is_last = number == len(coded.chunks) - 1
        require(is_last or len(found) == FULL_CHUNK, "Corrupt", "a short chunk before the last")
        require(bool(found) or number == 0, "Corrupt", "an empty chunk among others")
        positions += found
    require(bool(positions) == (scalar != 0), "Corrupt", "a mean of nothing, or none of something")
    values = np.zeros(coded.count, "<f4")
    values[positions] = coded.number()
    return values


CODEC = Codec(
    "sbc",
    4,
    decode,
    scalars=1,
    parameters={"p": SHARE, "positions": POSITIONS, "pull": of_means("p", SHARE)},
    later={"positions": "golomb", "pull": "p"},
)
