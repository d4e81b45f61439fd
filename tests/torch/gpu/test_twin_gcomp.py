"""gcomp's twin. The interpreter takes stretch by stretch, so cases are few, each for a branch."""

from pathlib import Path

import deltawire
import numpy as np
import pytest
import torch
from host_twin import LIBRARY, HostTwin
from library import Library, bits, parts_of
from spec_codec import Coded
from spec_codecs import MODULES
from spec_decoder import parse_file_header
from spec_hashes import DecodeError
from test_twin_bytes import check_equal, inputs

pytestmark = pytest.mark.timeout(300)
needs_library = pytest.mark.skipif(not LIBRARY.exists(), reason="libdeltawire.so is not built")
FILES = Path(__file__).parents[2] / "golden" / "files"
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
        ("gcomp:values=bf16", with_zeros(60)),
        ("gcomp:cut=18,values=fp16", with_zeros(130)),  # two lanes of codes
        ("gcomp:lossless=on,values=fp16", with_zeros(60)),
        ("gcomp:lossless=on", with_zeros(60)),
    ],
    ids=lambda given: given if isinstance(given, str) else len(given),
)
def test_bytes_and_values(device, spec, values):
    check_equal(device, spec, values, steps=1)


def with_tiny(count):
    """Values of which some are tiny, too few for a code of their own."""
    values = inputs(count)["normal"]
    values[::16] = 1e-40  # one of a line that is counted
    return values


@pytest.mark.parametrize(
    ("spec", "last"),
    [
        ("gcomp:cut=6", inputs(300)["normal"]),
        ("gcomp", noise(100)),
        ("gcomp:lossless=on", with_tiny(300)),
    ],
    ids=["coded", "stored", "tiny"],
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


def wild(count, dtype):
    """Values with zeros, subnormals, all kinds of what isn't finite, and numbers at the ends of 16
    bits."""
    values = with_zeros(count)
    values[7:13] = [65504, 65520, -7e-8, 2.9e-8, 6.0e-5, 3.39e38]
    values[13:15] = np.array([0x7F810000, 0xFFD10000], np.uint32).view(np.float32)
    made = torch.from_numpy(values).to(dtype)
    if dtype != torch.float32:
        made.view(torch.int16)[13:15] = torch.tensor([0x7F81, 0x7D01])  # NaNs of each dtype
    return made


def significances(count):
    generator = torch.Generator().manual_seed(count)
    found = torch.randn(count, generator=generator)
    found *= 2.0 ** torch.randint(0, 24, (count,), generator=generator)
    found[20:24] = torch.tensor([float("inf"), float("nan"), 0.0, -float("inf")])
    return found


def encoded_by_both(device, spec, values, residual=None, seen=None):
    """Checks that a twin and the library's codec make the same of a tensor; gives the part."""
    from deltawire.torch import gpu

    given = {"after": None if residual is None else torch.empty_like(residual)}
    wanted = HostTwin(spec).encode(values, residual, **given, significance=seen).collect()
    values, residual, seen = (
        None if each is None else each.to(device) for each in (values, residual, seen)
    )
    found = gpu.twin(spec).encode(values, residual, significance=seen).collect()
    assert found.payload.tolist() == wanted.payload.tolist()
    assert (list(found.ends), list(found.sums)) == (list(wanted.ends), list(wanted.sums))
    if residual is not None:
        np.testing.assert_array_equal(bits(residual), bits(given["after"]))
    return found


@needs_library
@pytest.mark.parametrize(
    ("spec", "dtype", "fed", "has_seen"),
    [
        ("gcomp:cut=18", torch.float32, True, False),
        ("gcomp:values=bf16", torch.bfloat16, False, False),  # which is not rounded, NaNs neither
        ("gcomp:values=bf16", torch.float32, True, False),
        ("gcomp:lossless=on,values=fp16", torch.float16, True, False),
        ("gcomp:lossless=on", torch.bfloat16, False, False),
        ("gcomp", torch.float32, True, True),
        ("gcomp:values=bf16", torch.float32, False, True),
        ("gcomp:levels=4,values=fp16", torch.float16, False, True),
        ("gcomp:cut=18,values=fp16", torch.float16, False, False),  # which stays in float16's range
        ("gcomp:cut=18", torch.float16, True, False),  # nor is cut beyond it
        ("gcomp:levels=4", torch.float32, False, True),
        ("gcomp:cut=6", torch.float32, False, True),  # which it ignores
    ],
)
def test_what_is_sent_and_what_is_left(device, spec, dtype, fed, has_seen):
    residual = torch.linspace(-0.3, 0.3, 60) if fed else None
    encoded_by_both(
        device, spec, wild(60, dtype), residual, significances(60) if has_seen else None
    )


@needs_library
@pytest.mark.parametrize(("spec", "has_seen"), [("cut=18", False), ("levels=4", True)])
def test_sums_of_float16_stay_in_its_range(device, spec, has_seen):
    from deltawire.torch import gpu
    from deltawire.torch.gpu.part_batches import PartBatches
    from deltawire.torch.gpu.parts import TO_ENCODE, row_of

    values = torch.linspace(-65504, 65504, 60).half()
    values[values.abs() < 32768] = 0  # smaller ones of sums are kept whole, too
    seen = torch.full((60,), torch.inf) if has_seen else None
    wanted = HostTwin(f"gcomp:{spec},values=fp16").encode(values, significance=seen).collect()
    sums = values.float().to(device)
    seen = seen.to(device) if has_seen else None
    places = {"values": sums.data_ptr(), "significance": seen.data_ptr() if has_seen else 0}
    row = row_of(TO_ENCODE, **places, count=60, dtype=1, carrier=3)
    rows = np.array([row], TO_ENCODE)
    given = ([gpu.twin(f"gcomp:{spec},values=fp16")], rows, np.ones(1))
    _, sizes, _, payload = PartBatches(device).encode_on_device(*given)
    assert payload[: int(sizes[0])].tolist() == wanted.payload.tolist()


@needs_library
@pytest.mark.parametrize("kind", ["half", "fewer bits", "huge", "tiny", "residual"])
def test_low_zeros_of_values_without_a_loss(device, kind):
    """A chunk is coded by levels only if at least half of some values end with three zeros, if that
    takes fewer bits, and if there is neither a tiny value nor a residual."""
    values, residual = torch.from_numpy(inputs(1024)["ties"] + np.float32(0)), None
    if kind in ("half", "fewer bits"):
        values = torch.from_numpy(inputs(1024)["normal"])
        values.view(torch.int32)[1::2] |= 1
        values.view(torch.int32)[::2] &= -(1 << 20) if kind == "half" else -8
    elif kind == "huge":  # of exponents that have no levels
        values *= 2.0**115
    elif kind == "tiny":
        values[1000] = 1e-40
    else:
        residual = torch.zeros(1024)
    part = encoded_by_both(device, "gcomp:lossless=on", values, residual)
    assert (part.payload[0] == 3) == (kind == "half")


GOLDEN = sorted(
    path
    for kind in ("edge", "not_finite", "paper")
    for path in FILES.glob(f"gcomp_*.{kind}.min0.dw")
)


def test_golden_files(device):
    for path in GOLDEN:
        file = path.read_bytes()
        (part,) = parts_of(file[parse_file_header(file).header_bytes :])
        wanted = np.load(path.with_suffix(".npz"))["values"]
        spec = path.name.partition(".")[0].replace("_", ":", 1).replace("_", ",").replace("-", "=")
        found = decoded(device, part.payload, len(wanted), spec)
        np.testing.assert_array_equal(found, bits(wanted), path.name)


def leveled(count):
    """A part whose values have levels of their own, and what it decodes to."""
    values = inputs(count)["normal"]
    seen = (values * 2.0 ** np.random.default_rng(1).integers(0, 24, count)).astype(np.float32)
    file = bytes(deltawire.encode(values, "gcomp", significance=seen))
    (part,) = parts_of(file[parse_file_header(file).header_bytes :])
    return part, deltawire.decode(file)


def decoded(device, payload, count, spec="gcomp"):
    from deltawire.torch import gpu
    from deltawire.torch.gpu.parts import EncodedPart

    out = torch.full((count,), 7.0, device=device)
    given = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
    gpu.twin(spec).decode(EncodedPart(given, [len(payload)]), out).check()
    return bits(out)


def refusal(call):
    try:
        call()
    except deltawire.DeltawireError as error:
        return error.code
    return None


@pytest.mark.parametrize("spec", ["gcomp", "gcomp:values=bf16", "gcomp:lossless=on,values=fp16"])
def test_first_bytes_of_halves(device, spec):
    from deltawire import canonical_spec

    _, _, given = canonical_spec(spec).rstrip(")").partition(":")
    parameters = dict(each.split("=") for each in given.split(","))
    for first in [128 + i for i in range(16)] + [0xA2, 0xA3, 0xA6, 0xAB, 0xCB, 0x92]:
        payload = bytes([first, 0x11, 0])  # the escape and zero
        wanted = None
        try:
            GCOMP.decode(Coded([payload], 1, parameters=parameters))
        except DecodeError as error:
            wanted = error.kind
        found = refusal(lambda payload=payload: decoded(device, payload, 1, spec))
        assert wanted is not None and found == wanted, hex(first)


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


@pytest.mark.parametrize("form", ["levels", "static", "whole", "halves", "whole halves"])
def test_spoiled_parts_are_refused_as_the_spec_refuses_them(device, form):
    rng = np.random.default_rng(7)
    count = 300 if form == "levels" else 40
    spec = {
        "static": "gcomp:cut=6",
        "halves": "gcomp:values=fp16",
        "whole halves": "gcomp:lossless=on,values=bf16",
    }.get(form, "gcomp")
    if form == "levels":
        payload = leveled(count)[0].payload
    else:
        values = inputs(count)["one" if form == "whole" else "normal"] * np.float32(3)
        values[::5] = 1e-3
        _, part = Library(spec).encode(values)
        payload = part.payload
    parameters = PARAMETERS | dict(each.split("=") for each in spec[6:].split(",") if each)
    refused = 0
    for _ in range(8):
        given = spoiled(payload, rng)
        try:
            wanted = GCOMP.decode(Coded([given], count, parameters=parameters)) + np.float32(0)
        except DecodeError:
            wanted = None
        try:
            found = decoded(device, given, count, spec)
        except deltawire.DeltawireError as error:
            assert error.code in ("Corrupt", "Truncated")
            found = None
        assert (found is None) == (wanted is None), given.hex()
        refused += wanted is None
        if wanted is not None:
            same = np.isnan(wanted) | (found == bits(wanted))
            assert same.all(), given.hex()
    assert 1 < refused < 8
