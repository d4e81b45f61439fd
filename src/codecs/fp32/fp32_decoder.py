"""fp32, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded


def decode(coded: Coded) -> np.ndarray:
    """Give the chunk's float32 numbers, their bits as they are."""
    return np.frombuffer(coded.chunk, "<f4")


CODEC = Codec("fp32", 1, decode, chunk_elements=65536, width=4)
