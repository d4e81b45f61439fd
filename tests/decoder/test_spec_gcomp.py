"""What gcomp keeps of a value beside its significance (spec.md, 6.2), read by the decoder here."""

import deltawire
import numpy as np
import pytest
from spec_decoder import decode_file

COUNT = 20000  # two blocks
CUTS = (18, 12, 6)


def inputs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Give values of all exponents, and significances around the places where levels begin."""
    random = np.random.default_rng(seed)
    values = random.integers(0, 2**32, COUNT, dtype=np.uint32)
    # Enough of one exponent to be coded, not stored.
    common = random.random(COUNT) < 0.8
    values[common] = (values[common] & 0x807FFFFF) | np.uint32(120 << 23)
    values[::3] = (values[::3] & 0xFFFC0000) | np.uint32(1 << 17)  # ties
    exponents = (values >> 23 & 255).astype(np.int64)
    above = (exponents + random.integers(-1, 20, COUNT)).clip(0, 255).astype(np.uint32)
    seen = (above << 23) | (random.integers(0, 2, COUNT, dtype=np.uint32) << 31)
    seen[::5] |= random.integers(0, 2**23, seen[::5].size, dtype=np.uint32)
    return values.view(np.float32), seen.view(np.float32)


def kept(bits: int, seen: float) -> int:
    """Cut one value as the specification says, in whole numbers."""
    exponent = bits >> 23 & 255
    if exponent == 0:
        return 0
    if exponent >= 254:
        return bits
    for cut in CUTS:
        if abs(seen) >= 2.0 ** (cut - 1 + exponent - 127):  # false for NaN
            steps, rest = divmod(bits, 1 << cut)
            up = 2 * rest > 1 << cut or (2 * rest == 1 << cut and steps % 2 == 1)
            return (steps + up) << cut
    return bits


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_levels_and_rounding(seed: int) -> None:
    """Values of every exponent and level, through a coded chunk of two blocks."""
    values, seen = inputs(seed)
    file = deltawire.encode(values, "gcomp", significance=seen)
    assert len(file) < 3.5 * COUNT, "stored, not coded"
    decoded = decode_file(file)
    pairs = zip(values.view(np.uint32).tolist(), map(float, seen), strict=True)
    expected = np.array([kept(bits, number) for bits, number in pairs], np.uint32)
    assert decoded.view(np.uint32).tolist() == expected.tolist()
