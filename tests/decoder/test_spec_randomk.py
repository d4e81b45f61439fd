"""The decoder of randomk that was written from its spec.md, on parts made by hand."""

import struct

import numpy as np
import pytest
from spec_codecs import codec_of_spec
from spec_hashes import DecodeError
from spec_randomk import kept_of, mixed, places

DECODER = codec_of_spec(b"randomk:k=0.3,unbiased=off")


def kind_of(chunks: list[bytes], count: int) -> str:
    """Give the kind of error with which a part is refused."""
    with pytest.raises(DecodeError) as caught:
        DECODER.decode_part(chunks, count, 5)
    return caught.value.kind


def test_the_stream_is_splitmix64() -> None:
    """The first numbers of the published generator, whose state after i steps is i times g."""
    assert mixed(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF
    assert mixed(2 * 0x9E3779B97F4A7C15 & (1 << 64) - 1) == 0x6E789E6AA1B965F4


def test_each_stratum_has_one_place() -> None:
    """Of ten elements in three strata: [0, 3), [3, 6), [6, 10)."""
    for seed in range(200):
        first, second, third = places(seed, 10, 3)
        assert 0 <= first < 3 <= second < 6 <= third < 10
    assert {place for seed in range(200) for place in places(seed, 10, 3)} == set(range(10))


def test_handmade() -> None:
    """Values stand at their places, -0 nowhere."""
    chunk = struct.pack("<3f", 1.5, -0.0, -2)
    values = DECODER.decode_part([chunk], 10, 5)
    expected = np.zeros(10, "<f4")
    first, _, third = places(5, 10, 3)
    expected[first], expected[third] = 1.5, -2
    assert values.tobytes() == expected.tobytes()


def test_shares() -> None:
    """Halves go up; at least one and at most all are sent."""
    assert [kept_of("0.5", n) for n in (1, 2, 3, 5)] == [1, 1, 2, 3]
    assert kept_of("0.000001", 7) == 1
    assert kept_of("0.999", 3) == 3


def test_refused() -> None:
    """Lengths that are not those of the count, and values that are not finite."""
    chunk = struct.pack("<3f", 1, 2, 3)
    assert kind_of([chunk[:11]], 10) == "Truncated"
    assert kind_of([chunk + b"0"], 10) == "Corrupt"
    assert kind_of([chunk[:8], chunk[8:]], 10) == "Corrupt"
    for bad in (np.nan, np.inf, -np.inf):
        assert kind_of([struct.pack("<3f", 1, 2, bad)], 10) == "Corrupt"
