"""gcomp's twin. The interpreter takes stretch by stretch, so cases are few, each for a branch."""

import deltawire
import numpy as np
import pytest
import torch
from library import Library, bits, parts_of
from spec_codec import Coded
from spec_codecs import MODULES
from spec_decoder import parse_file_header
from spec_hashes import DecodeError
from test_twin_bytes import check_equal, inputs

pytestmark = pytest.mark.timeout(300)
GCOMP = next(module.CODEC for module in MODULES if module.CODEC.name == "gcomp")
PARAMETERS = {"cut": "auto", "levels": "8", "lossless": "off"}


def with_zeros(count):
    """Values with zeros, subnormals and what isn't finite among them."""
    values = inputs(count)["normal"]
    values[::3] = 0
    values[:7] = [np.nan, np.inf, -np.inf, -0.0, 1e-40, -3e38, 3.4e38]
    return values


def noise(count):
    """Values of all exponents."""
    patterns = np.random.default_rng(count).integers(0, 2**32, count, dtype=np.uint32)
    return patterns.view(np.float32)


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ("gcomp", inputs(10)["normal"]),  # stored, as a table would take more
        ("gcomp", with_zeros(300)),
        ("gcomp:cut=6", with_zeros(120)),  # a lane of each kind
        ("gcomp", inputs(330)["heavy"]),  # escapes
        ("gcomp:cut=18", inputs(4200)["ties"]),  # 64 and 16 lanes
        ("gcomp", np.zeros(100, np.float32)),
        ("gcomp", np.full(50, 1.5, np.float32)),  # one symbol
        ("gcomp", noise(100)),
        ("gcomp", inputs(16500)["normal"]),  # a sample of one in 16
    ],
    ids=lambda given: given if isinstance(given, str) else len(given),
)
def test_bytes_and_values(device, spec, values):
    check_equal(device, spec, values, steps=1)


@pytest.mark.parametrize(
    ("spec", "last"),
    [("gcomp:cut=6", inputs(300)["normal"]), ("gcomp", noise(100))],
    ids=["coded", "stored"],
)
def test_blocks_of_several_modes(device, spec, last):
    values = np.zeros(32768 + len(last), np.float32)
    values[32768:] = last
    check_equal(device, spec, values)


def test_several_chunks(device):
    if device.type == "cpu":
        pytest.skip("thousands of stretches, one after another: only on a GPU")
    values = inputs(2 * 262144 + 5000)["normal"]
    values[40000:262144] = 0
    check_equal(device, "gcomp:cut=6", values)


def test_a_residual_keeps_what_is_not_sent(device):
    from deltawire.torch import gpu

    values = inputs(100)["normal"]
    residual = torch.full((100,), 0.3, device=device)
    values[5] = np.nan
    sums = torch.from_numpy(values).to(device) + residual
    part = gpu.twin("gcomp:cut=18").encode(torch.from_numpy(values).to(device), residual).collect()
    _, wanted = Library("gcomp:cut=18").encode(sums.cpu().numpy())
    assert part.payload.numpy().tobytes() == wanted.payload
    sent = torch.empty(100, device=device)
    gpu.twin("gcomp:cut=18").decode(part, sent).check()
    left = torch.where(torch.isnan(sums), torch.zeros_like(sums), sums - sent)
    assert torch.equal(residual, left)


def test_values_of_16_bits_have_no_twin(device):
    from deltawire.torch import gpu

    with pytest.raises(TypeError, match="bfloat16 on a device; give torch.float32$"):
        gpu.twin("gcomp").encode(torch.ones(300, dtype=torch.bfloat16, device=device))
    for spec in ("gcomp:lossless=on", "gcomp:values=bf16"):
        with pytest.raises(deltawire.InvalidArgumentError, match="lossless must be off"):
            gpu.twin(spec)


def leveled(count):
    """A part whose values have levels of their own, and what it decodes to."""
    values = inputs(count)["normal"]
    seen = (values * 2.0 ** np.random.default_rng(1).integers(0, 24, count)).astype(np.float32)
    file = bytes(deltawire.encode(values, "gcomp", significance=seen))
    (part,) = parts_of(file[parse_file_header(file).header_bytes :])
    return part, deltawire.decode(file)


def decoded(device, payload, count):
    from deltawire.torch import gpu
    from deltawire.torch.gpu.parts import EncodedPart

    out = torch.full((count,), 7.0, device=device)
    given = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
    gpu.twin("gcomp").decode(EncodedPart(given, [len(payload)]), out).check()
    return bits(out)


def test_levels_are_decoded(device):
    part, wanted = leveled(1100)
    assert part.payload[0] & 3 == 3
    np.testing.assert_array_equal(decoded(device, part.payload, 1100), bits(wanted))


def spoiled(payload, rng):
    """The payload with a byte changed, cut short, or with one more."""
    at = int(rng.integers(0, len(payload)))
    kind = int(rng.integers(0, 8))
    if kind == 0:
        return payload[: max(at, 1)]
    if kind == 1:
        return payload + b"\0"
    changed = bytearray(payload)
    changed[at if kind > 4 else at % 24] ^= 1 << int(rng.integers(0, 8))
    return bytes(changed)


@pytest.mark.parametrize("form", ["levels", "static", "whole"])
def test_spoiled_parts_are_refused_as_the_spec_refuses_them(device, form):
    rng = np.random.default_rng(7)
    count = 300 if form == "levels" else 40
    if form == "levels":
        payload = leveled(count)[0].payload
    else:
        values = inputs(count)["normal" if form == "static" else "one"] * np.float32(3)
        values[::5] = 1e-3
        _, part = Library("gcomp:cut=6" if form == "static" else "gcomp").encode(values)
        payload = part.payload
    refused = 0
    for _ in range(8):
        given = spoiled(payload, rng)
        try:
            wanted = GCOMP.decode(Coded([given], count, parameters=PARAMETERS)) + np.float32(0)
        except DecodeError:
            wanted = None
        try:
            found = decoded(device, given, count)
        except deltawire.DeltawireError as error:
            assert error.code in ("Corrupt", "Truncated")
            found = None
        assert (found is None) == (wanted is None), given.hex()
        refused += wanted is None
        if wanted is not None:
            same = np.isnan(wanted) | (found == bits(wanted))
            assert same.all(), given.hex()
    assert 1 < refused < 8
