"""encode, decode and codecs of the package on NumPy arrays, and its exceptions."""

import pickle

import deltawire
import numpy as np
import pytest
from refusals import raised

SPECS = [info.name for info in deltawire.codecs()]
LOSSLESS = [info.name for info in deltawire.codecs() if info.lossless]


def test_the_registry_describes_every_codec():
    assert {"fp32", "bf16", "3lc"} <= set(SPECS)
    for info in deltawire.codecs():
        assert info.summary and info.source and info.default_pattern
        for parameter in info.parameters:
            assert parameter.name and parameter.range and parameter.meaning
            assert f"{parameter.name}={parameter.default_value}" in repr(info) or info.parameters


@pytest.mark.parametrize("spec", SPECS)
def test_shapes_come_back(spec):
    for shape in [(), (1,), (0,), (3, 0, 2), (1000,), (7, 11, 13), (1,) * 8]:
        array = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
        out = deltawire.decode(deltawire.encode(np.asarray(array), spec))
        assert out.shape == shape and out.dtype == np.float32
        if spec in LOSSLESS:
            assert out.tobytes() == np.asarray(array).tobytes(), shape


def test_slices_and_other_bytes_like_objects():
    array = np.arange(2000, dtype=np.float32).reshape(40, 50)
    data = deltawire.encode(array[:, ::2], "fp32")
    for held in (data, bytearray(data), memoryview(data)):
        assert np.array_equal(deltawire.decode(held), array[:, ::2])


@pytest.mark.parametrize(
    "array",
    [np.zeros(4), np.zeros(4, np.float16), np.zeros(4, np.int32), np.zeros(4, ">f4"), [1.0, 2.0]],
)
def test_other_dtypes_are_type_errors(array):
    caught = raised(TypeError, deltawire.encode, array, "fp32", match="convert")
    assert caught.code == "UnsupportedDType"


@pytest.mark.parametrize(
    ("spec", "code", "says"),
    [("4lc", "UnknownCodec", "3lc"), ("3lc:speed=1", "InvalidArgument", "speed")],
)
def test_bad_specs_are_value_errors(spec, code, says):
    caught = raised(ValueError, deltawire.encode, np.zeros(1000, np.float32), spec, match=says)
    assert isinstance(caught, deltawire.DeltawireError)
    assert caught.code == code
    assert "\n" not in str(caught)


def test_nan_is_refused_where_the_codec_cant_carry_it():
    array = np.zeros(1000, np.float32)
    array[17] = np.nan
    caught = raised(deltawire.DeltawireError, deltawire.encode, array, "3lc", match="17")
    assert caught.code == "NotFinite"


def test_damaged_files_are_errors():
    data = deltawire.encode(np.linspace(-1, 1, 600, dtype=np.float32), "3lc")
    for length in range(0, len(data), 7):
        with pytest.raises(deltawire.DeltawireError):
            deltawire.decode(data[:length])
    rng = np.random.default_rng(11)
    for at in rng.integers(0, len(data), 200):
        flipped = bytearray(data)
        flipped[at] ^= 1 << int(rng.integers(0, 8))
        with pytest.raises((deltawire.DeltawireError, TypeError)):
            deltawire.decode(bytes(flipped))


def test_large_claims_take_no_memory():
    data = deltawire.encode(np.zeros(1_000_000, np.float32), "3lc")
    with pytest.raises(deltawire.DeltawireError, match="max_elements") as caught:
        deltawire.decode(data, max_elements=999_999)
    assert caught.value.code == "Limit"
    assert deltawire.decode(data, max_elements=1_000_000).size == 1_000_000


def test_errors_survive_pickling():
    error = deltawire.DeltawireError("rank 3 is gone", "PeerLost", 3)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.code, copy.suspect) == ("rank 3 is gone", "PeerLost", 3)


def test_link_shapes_are_checked():
    assert deltawire.LinkShape().bytes_per_second == 12.5e6
    assert deltawire.LinkShape(10**7, np.int64(1)).burst_bytes == 1
    rates = [{"bytes_per_second": value} for value in (0, -1.0, float("nan"), "fast", None)]
    bursts = [{"burst_bytes": value} for value in (0, 16385, -1, 1.5, "1")]
    for wrong in (*rates, *bursts):
        ((name, value),) = wrong.items()
        with pytest.raises(deltawire.InvalidArgumentError, match=f"{name}={value!r} must be"):
            deltawire.LinkShape(**wrong)
