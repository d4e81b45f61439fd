"""threshold, decoded as its spec.md says: its parts are those of topk."""

import numpy as np
from spec_codec import Codec, Coded, number
from spec_sparse import PARAMETERS, decode

LIMITS = number(np.float32(1e-12), np.float32(1e12))

CODEC = Codec("threshold", 15, decode, scalars=1, parameters={"t": LIMITS, **PARAMETERS})


def of(code: list[int], count: int = 5) -> Coded:
    """Make a part of one chunk."""
    return Coded([bytes(code)], count, (0, 0), {"t": "0.01", "values": "bf16"})


GOOD = {"one of five": (of([0, 1, 0, 3, 0, 0, 0, 0x80, 0x3F]), [0, 0, 0, 1, 0])}
REFUSED = {
    "beyond the part": (of([0, 1, 0, 5, 0, 0, 0, 0x80, 0x3F]), "Corrupt"),
    "a step": (Coded([bytes(3)], 5, (1, 0), {"t": "0.01", "values": "bf16"}), "Corrupt"),
}
