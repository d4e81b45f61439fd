"""A twin's payload, ends, sums, scalars, residual and values are the codec's, bit for bit."""

import numpy as np
import pytest
import torch
from library import Library, bits, has_feedback

_SPECS = """
    3lc 3lc:s=1.75,mode=paper 3lc:runs=off 3lc:s=0.5 3lc:pull=0.5 int8 topk:k=0.05
    topk:k=0.2,values=int8 topk:k=0.2,values=bf16 sbc:p=0.05 fp32 bf16 fp16 fp8
    fp8:format=e5m2,block=1024 fp4 fp4:format=e3m0,block=1024 blockint blockint:bits=4,block=64
"""
SPECS = _SPECS.split()
COUNTS = [1, 31, 32, 33, 641]
CHUNKS = {"3lc": 40960, "topk": 16384, "sbc": 16384}  # elements, or positions; else 65536
STEPS = 2
THIRD = float(np.float32(1 / 3))


def inputs(count):
    rng = np.random.default_rng(count)
    normal = rng.standard_normal(count).astype(np.float32)
    return {
        "normal": normal,
        "ties": (np.round(normal * 4) / 4).astype(np.float32),
        "heavy": (normal**9).astype(np.float32),
        "subnormal": (normal * np.float32(1e-42)).astype(np.float32),
        "one": np.where(np.arange(count) == count // 2, 1, 0).astype(np.float32),
    }


def check_equal(device, spec, values, steps=STEPS, after=False):
    """Encodes and decodes several steps by both, and compares all that comes out."""
    from deltawire.torch import gpu

    twin, library = gpu.twin(spec), Library(spec)
    count = len(values)
    residual = torch.zeros(count, device=device) if has_feedback(spec) else None
    for _ in range(steps if residual is not None else 1):
        message, part = library.encode(values)
        if not part.ends:  # a bare segment: the codec was not asked
            return
        other = torch.full_like(residual, 3.0) if after and residual is not None else None
        on_device = torch.from_numpy(values).to(device)
        made = twin.encode(on_device, residual, other).collect()
        residual = residual if other is None else other
        assert list(made.ends) == part.ends
        assert made.scalars == (*part.scalars, 0, 0)[:2]
        assert made.payload.numpy().tobytes() == part.payload
        assert list(made.sums) == part.sums
        if residual is not None:
            np.testing.assert_array_equal(bits(residual), bits(library.residual()))
        for scale, add in ((1.0, False), (THIRD, True)):
            slot = np.linspace(-1, 1, count, dtype=np.float32)
            slot[::7] = -0.0
            out = torch.from_numpy(slot.copy()).to(device)
            (twin.decode_add if add else twin.decode)(made, out, scale).check()
            library.decode(message, slot, scale, add)
            np.testing.assert_array_equal(bits(out), bits(slot))


@pytest.mark.parametrize("spec", SPECS)
def test_random_values(device, spec):
    for count in COUNTS:
        check_equal(device, spec, inputs(count)["normal"])


@pytest.mark.parametrize("spec", ["3lc", "int8", "topk:values=bf16", "sbc"])
def test_residuals_of_many_steps(device, spec):
    check_equal(device, spec, inputs(330)["normal"], steps=6)


@pytest.mark.parametrize("kind", ["ties", "heavy", "subnormal", "one"])
@pytest.mark.parametrize("spec", SPECS)
def test_values_of_kinds(device, spec, kind):
    check_equal(device, spec, inputs(330)[kind], after=True)


@pytest.mark.parametrize(
    ("spec", "dropped"),
    [("bf16", 16), ("fp16", 13), ("fp8", 20), ("fp8:format=e5m2", 21)]
    + [("fp4", 22), ("fp4:format=e3m0", 23)],
)
def test_floats_between_two_codes(device, spec, dropped):
    rng = np.random.default_rng(dropped)
    upper = rng.integers(0x3F000000, 0x41000000, 650) >> dropped << dropped
    patterns = (upper | 1 << (dropped - 1)).astype(np.uint32)
    check_equal(device, spec, patterns.view(np.float32) * rng.choice([-1, 1], 650).astype("f4"))


@pytest.mark.parametrize(
    "spec", ["fp8", "fp8:format=e5m2", "fp4", "fp4:format=e3m0", "blockint", "blockint:bits=4"]
)
def test_the_largest_floats(device, spec):
    patterns = np.random.default_rng(1).integers(0x7E000000, 0x7F800000, 650).astype(np.uint32)
    check_equal(device, spec, patterns.view(np.float32), steps=1)


@pytest.mark.parametrize("spec", SPECS)
def test_borders_of_chunks(device, spec):
    chunk = CHUNKS.get(spec.partition(":")[0], 65536)
    values = np.zeros(2 * chunk + 33, np.float32)
    sent = np.arange(0, len(values), 1601)  # few, as the interpreter decodes one after another
    values[sent] = np.where(sent % 2 == 0, 1, -1)
    check_equal(device, spec, values, steps=1)


@pytest.mark.parametrize("spec", SPECS)
def test_no_elements(device, spec):
    from deltawire.torch import gpu

    twin = gpu.twin(spec)
    empty = torch.zeros(0, device=device)
    part = twin.encode(empty, empty.clone()).collect()
    assert (part.payload.numel(), part.ends, part.scalars) == (0, [], (0, 0))
    twin.decode(part, empty).check()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("spec", SPECS)
def test_16_bit_values_have_the_bytes_of_the_same_values_in_float32(device, spec, dtype):
    from deltawire.torch import gpu

    twin = gpu.twin(spec)
    values = torch.from_numpy(inputs(321)["normal"]).to(device, dtype)
    narrow = twin.encode(values).collect()
    wide = twin.encode(values.to(torch.float32)).collect()
    assert narrow.payload.tolist() == wide.payload.tolist()
    assert (narrow.ends, narrow.sums, narrow.scalars) == (wide.ends, wide.sums, wide.scalars)
