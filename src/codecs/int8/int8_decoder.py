"""int8, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded
from spec_hashes import require

LARGEST_STEP = 0x7C010203
HALF = 0x3F000000


def decode(coded: Coded) -> np.ndarray:
    """Multiply the codes -127 ... 127 with the step."""
    step = coded.scalars[0]
    require(step <= LARGEST_STEP, "Corrupt", "the step is negative or beyond the largest")
    codes = np.frombuffer(coded.chunk, "i1")
    require(not (codes == -128).any(), "Corrupt", "a code of -128")
    require(step != 0 or not codes.any(), "Corrupt", "a code where the step is 0")
    return codes.astype("<f4") * coded.number()


CODEC = Codec("int8", 7, decode, chunk_elements=65536, scalars=1, width=1)
