"""fastsgd's twin: chunks of many pairs, what is not sent, and parts that no encoder writes."""

import deltawire
import numpy as np
import pytest
import torch
from library import Library, bits
from spec_codec import Coded
from spec_codecs import MODULES
from spec_hashes import DecodeError
from test_twin_bytes import check_equal, inputs

FASTSGD = next(module.CODEC for module in MODULES if module.CODEC.name == "fastsgd")


def far_apart(count):
    """Gaps of up to 17 bits among gaps of 0."""
    values = np.zeros(count, np.float32)
    values[[0, 1, 2, 70000, 70001, count - 1]] = [1, -2, 3, -4, 5, 6]
    return values


def all_exponents(count):
    """Values of all exponents whose sum float32 has."""
    patterns = np.random.default_rng(count).integers(0, 0x7C000000, count, dtype=np.uint32)
    return patterns.view(np.float32)


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ("fastsgd:keep=0.7,residual=on", inputs(70000)["normal"]),  # of two blocks, three chunks
        ("fastsgd:tau=128", np.ones(16385, np.float32)),  # no gaps; one pair in the second chunk
        ("fastsgd:keep=0.9,l=5", far_apart(140000)),  # fewer than are wanted
        ("fastsgd:tau=1,residual=on", inputs(100)["normal"]),  # no pairs
        ("fastsgd:b=1.02,keep=0.9,l=1", all_exponents(300)),
        ("fastsgd:tau=2047,b=1.02,l=3", all_exponents(300)),
        ("fastsgd:keep=0.5", np.full(99, 1e-44, np.float32)),
    ],
    ids=lambda given: given if isinstance(given, str) else len(given),
)
def test_bytes_and_values(device, spec, values):
    check_equal(device, spec, values)


def test_a_sum_beyond_float32_is_refused(device):
    from deltawire.torch import gpu

    values = torch.full((300,), 3e38, device=device)
    residual = torch.ones_like(values)
    with pytest.raises(deltawire.DeltawireError, match="scale the tensor down") as refused:
        gpu.twin("fastsgd:residual=on").encode(values, residual).collect()
    assert refused.value.code == "Range"
    assert residual.eq(1).all()


def decoded(device, spec, payload, count, scalar):
    from deltawire.torch import gpu
    from deltawire.torch.gpu.parts import EncodedPart

    out = torch.full((count,), 7.0, device=device)
    given = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
    gpu.twin(spec).decode(EncodedPart(given, [len(payload)], (), (scalar, 0)), out).check()
    return bits(out)


@pytest.mark.parametrize(("flag_bits", "tau"), [("2", "50"), ("1", "auto")])
def test_spoiled_parts_are_refused_as_the_spec_refuses_them(device, flag_bits, tau):
    parameters = {"b": "1.5", "tau": tau, "l": flag_bits, "keys": "flags"}
    spec = f"fastsgd:b=1.5,tau={tau},l={flag_bits}"
    values = inputs(60)["normal"]
    values[::3] = 0
    values[20:50] = 0
    _, part = Library(spec).encode(values)
    rng = np.random.default_rng(3)
    refused = 0
    for _ in range(30):
        given = bytearray(part.payload)
        given[int(rng.integers(0, len(given)))] ^= 1 << int(rng.integers(0, 8))
        coded = Coded([bytes(given)], 60, part.scalars, parameters)
        try:
            wanted = bits(FASTSGD.decode(coded))
        except DecodeError:
            wanted = None
        try:
            found = decoded(device, spec, given, 60, part.scalars[0])
        except deltawire.DeltawireError as error:
            assert error.code in ("Corrupt", "Truncated")
            found = None
        assert (found is None) == (wanted is None), given.hex()
        refused += wanted is None
        if wanted is not None:
            np.testing.assert_array_equal(found, wanted, given.hex())
    assert 5 < refused < 30


def test_keys_grow_from_chunk_to_chunk(device):
    from deltawire.torch import gpu
    from deltawire.torch.gpu.parts import EncodedPart

    _, part = Library("fastsgd:tau=128").encode(np.ones(16386, np.float32))
    twin, out = gpu.twin("fastsgd:tau=128"), torch.zeros(16386, device=device)
    payload = torch.frombuffer(bytearray(part.payload), dtype=torch.uint8)
    twin.decode(EncodedPart(payload, part.ends, (), part.scalars), out).check()
    assert out.unique().numel() == 1
    key = part.ends[0] + 5
    payload[key : key + 2] = torch.tensor([0xFF, 0x3F])  # of the second chunk: the first's last
    with pytest.raises(deltawire.DeltawireError, match="no encoder writes"):
        twin.decode(EncodedPart(payload, part.ends, (), part.scalars), out).check()
