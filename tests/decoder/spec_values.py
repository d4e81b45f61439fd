"""Values of the sparse codecs, as topk's spec.md has them (section 3)."""

import numpy as np
from spec_codec import one_of
from spec_hashes import require

WIDTHS = {"fp32": 4, "bf16": 2, "int8": 1}
FORMAT = one_of(*WIDTHS)
LARGEST_STEP = 0x7C010203


def check_step(kind: str, step: int) -> None:
    """Check the scalar: the bits of int8's step, or 0."""
    require(step <= (LARGEST_STEP if kind == "int8" else 0), "Corrupt", "a step that none can be")


def decoded(codes: bytes, kind: str, step: int) -> np.ndarray:
    """Give the values behind codes."""
    if kind == "int8":
        numbers = np.frombuffer(codes, "i1")
        require(bool((numbers != -128).all()), "Corrupt", "the code -128")
        require(step > 0 or not numbers.any(), "Corrupt", "a code other than 0 at the step 0")
        return numbers.astype("<f4") * np.array(step, "<u4").view("<f4")
    if kind == "bf16":
        values = (np.frombuffer(codes, "<u2").astype("<u4") << 16).view("<f4")
    else:
        values = np.frombuffer(codes, "<f4")
    require(bool(np.isfinite(values).all()), "Corrupt", "a value that is not finite")
    return values
