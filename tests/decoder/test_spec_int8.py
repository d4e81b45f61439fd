"""The decoder of int8 that was written from its spec.md, on chunks made by hand."""

import numpy as np
import pytest
from spec_codecs import INT8, check_int8_step, check_wide_end
from spec_hashes import DecodeError

HALF = 0x3F000000
LARGEST = 0x7C010203


def kind_of(chunk: list[int], scalar: int) -> str:
    """Give the kind of error with which a chunk is refused."""
    with pytest.raises(DecodeError) as caught:
        INT8.decode(bytes(chunk), len(chunk), scalar)
    return caught.value.kind


def test_handmade() -> None:
    """Codes are two's complement and count steps."""
    decoded = INT8.decode(bytes([127, 129, 255, 0]), 4, HALF)
    assert decoded.tobytes() == np.array([63.5, -63.5, -0.5, 0], "<f4").tobytes()
    assert np.isfinite(INT8.decode(bytes([127]), 1, LARGEST)).all()


def test_refused_codes() -> None:
    """-128 is no code, and a step of 0 goes with codes of 0 alone."""
    assert kind_of([0, 128], HALF) == "Corrupt"
    assert kind_of([0, 1], 0) == "Corrupt"
    assert not INT8.decode(bytes(2), 2, 0).any()


@pytest.mark.parametrize("scalar", [LARGEST + 1, 0x7F800000, 0x7FC00000, 0x80000000, 0xBF800000])
def test_refused_steps(scalar: int) -> None:
    """A step is not negative, and 127 of it are finite."""
    check_int8_step(LARGEST)
    with pytest.raises(DecodeError) as caught:
        check_int8_step(scalar)
    assert caught.value.kind == "Corrupt"


def test_refused_ends() -> None:
    """A chunk has one byte for each element."""
    for end, kind in ((4, "Truncated"), (6, "Corrupt")):
        with pytest.raises(DecodeError) as caught:
            check_wide_end(INT8.width, end, 5)
        assert caught.value.kind == kind
