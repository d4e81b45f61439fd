"""What a twin refuses, and how it says so."""

import sys
import types

import deltawire
import numpy as np
import pytest
import torch
from library import Library, bits
from ranks import results

SPECS = ["3lc", "int8", "topk:values=int8", "sbc", "fp16", "fp8", "fp4", "blockint"]
NAN, INF = float("nan"), float("inf")


def gpu():
    import deltawire.torch.gpu

    return deltawire.torch.gpu


def refusal(call):
    with pytest.raises(deltawire.DeltawireError) as refused:
        call()
    return refused.value


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("spec", SPECS)
def test_the_first_value_that_is_not_finite_is_named_as_the_codec_names_it(device, spec, bad):
    values = np.linspace(-1, 1, 700, dtype=np.float32)
    values[400] = values[600] = bad
    library = refusal(lambda: deltawire.Channel(spec, min_elements=0).encode({"t": values}))
    residual = torch.full((700,), 0.25, device=device)
    encoding = gpu().twin(spec).encode(torch.from_numpy(values).to(device), residual)
    ours = refusal(encoding.collect)
    assert ours.code == library.code == "NotFinite"
    assert f"element 400 of the input is {bad}" in str(ours)
    assert "element 400 of the input is" in str(library)
    assert residual.eq(0.25).all()


@pytest.mark.parametrize("spec", SPECS)
def test_a_sum_that_is_not_finite_is_named(device, spec):
    values = torch.full((321,), 3e38, device=device)
    residual = torch.zeros(321, device=device)
    residual[300] = 3e38
    error = refusal(gpu().twin(spec).encode(values, residual).collect)
    assert error.code == "NotFinite"
    assert "element 300 is inf once the residual" in str(error)
    assert residual[300] == np.float32(3e38) and residual.count_nonzero() == 1


@pytest.mark.parametrize("spec", ["fp32", "bf16"])
def test_values_that_are_not_finite_are_carried(device, spec):
    values = np.linspace(-1, 1, 700, dtype=np.float32)
    values[[3, 50, 400]] = [NAN, INF, -INF]
    twin = gpu().twin(spec)
    part = twin.encode(torch.from_numpy(values).to(device)).collect()
    library = Library(spec)
    message, wanted = library.encode(values)
    assert part.payload.numpy().tobytes() == wanted.payload
    slot, out = np.zeros_like(values), torch.zeros(700, device=device)
    library.decode(message, slot, 1.0, add=False)
    twin.decode(part, out).check()
    np.testing.assert_array_equal(bits(out), bits(slot))


def test_an_m_beyond_float32_is_refused(device):
    values = torch.full((321,), 3e38, device=device)
    residual = torch.zeros(321, device=device)
    error = refusal(gpu().twin("3lc:s=1.75").encode(values, residual).collect)
    assert error.code == "Range"
    assert not residual.any()


@pytest.mark.parametrize("spec", ["zstd", "gcomp", "onebit", "fastsgd"])
def test_a_codec_without_a_twin_names_those_that_have_one(spec):
    with pytest.raises(
        deltawire.InvalidArgumentError, match="have one: 3lc, int8, topk, sbc, fp32"
    ):
        gpu().twin(spec)
    assert spec not in gpu().codecs_with_twin()


@pytest.mark.parametrize("spec", ["w: int8, rest fp32", "sparseloco"])
def test_rules_and_recipes_have_no_twin(spec):
    with pytest.raises(deltawire.InvalidArgumentError, match="no codec's spec"):
        gpu().twin(spec)


def without_triton(rank, world_size, report):
    said = []
    for there in (None, types.SimpleNamespace(__version__="3.2.0")):
        sys.modules["triton"] = there
        with pytest.raises(ImportError, match=r"deltawire.torch.gpu needs Triton: ") as refused:
            gpu().twin("int8")
        said.append(str(refused.value))
    return said


def test_without_triton_the_error_says_what_to_install():
    ((missing, old),) = results(without_triton, 1)
    assert "pip install triton" in missing and "3.2.0 is too old; PyTorch 2.8 and later" in old


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        *((f"{codec}:positions=auto", "positions must be golomb") for codec in ("sbc", "topk")),
        *(
            (f"topk:{form}", "leave values=2bit and chunk= out")
            for form in ("values=2bit", "chunk=64")
        ),
    ],
)
def test_forms_without_a_twin(device, spec, why):
    with pytest.raises(deltawire.InvalidArgumentError, match=why):
        gpu().twin(spec)


def test_tensors_that_a_twin_does_not_take(device):
    twin = gpu().twin("int8")
    assert twin.takes(torch.float32) and not twin.takes(torch.float64)
    values = torch.ones(4, 4, device=device)
    assert isinstance(refusal(lambda: twin.encode(values.double())), TypeError)
    assert "contiguous" in str(refusal(lambda: twin.encode(values.t()[1:])))
    assert "has 3 elements" in str(refusal(lambda: twin.encode(values, torch.ones(3))))
    part = twin.encode(values).collect()
    assert isinstance(refusal(lambda: twin.decode(part, values.half())), TypeError)
    assert refusal(lambda: twin.decode(part, torch.ones(17, device=device))).code == "Truncated"
