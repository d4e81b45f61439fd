"""bf16, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded


def decode(coded: Coded) -> np.ndarray:
    """Put 16 zero bits below each u16."""
    return (np.frombuffer(coded.chunk, "<u2").astype("<u4") << 16).view("<f4")


CODEC = Codec("bf16", 2, decode, chunk_elements=65536, width=2)
