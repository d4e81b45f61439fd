"""fp16, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded
from spec_hashes import require


def decode(coded: Coded) -> np.ndarray:
    """Widen the chunk's float16 numbers."""
    values = np.frombuffer(coded.chunk, "<f2").astype("<f4")
    require(bool(np.isfinite(values).all()), "Corrupt", "a value that is not finite")
    return values


CODEC = Codec("fp16", 17, decode, chunk_elements=65536, width=2)
