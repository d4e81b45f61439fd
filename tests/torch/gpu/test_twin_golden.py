"""The golden messages' parts, both ways; and the parts that each codec's decoder brings along."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from deltawire import DeltawireError
from library import bits, parts_of
from spec_codecs import MODULES

GOLDEN = Path(__file__).parents[2] / "golden"
CODECS = ["3lc", "int8", "topk", "sbc", "fp32", "bf16", "fp16", "fp8", "fp4", "blockint"]
WITH_VALUES = [m for m in MODULES if m.CODEC.name in CODECS]


def parts_of_codec(device, module, which):
    """(name, a part made by hand, what comes of it), on a CPU without those of thousands of codes,
    which it decodes one after another."""
    for name, (coded, expected) in getattr(module, which, {}).items():
        if device.type != "cpu" or sum(map(len, coded.chunks)) <= 4000:
            yield name, coded, expected


def golden_arrays():
    sys.path.insert(0, str(GOLDEN))
    try:
        from messages import arrays_of
    finally:
        sys.path.remove(str(GOLDEN))
    return arrays_of(300)


@pytest.mark.parametrize("name", CODECS)
def test_golden_message(device, name):
    from deltawire.torch import gpu
    from deltawire.torch.gpu.parts import EncodedPart

    twin = gpu.twin(name)
    w, _, v = parts_of((GOLDEN / "messages" / f"{name}.300.message").read_bytes())
    arrays = golden_arrays()
    decoded = np.load(GOLDEN / "messages" / f"{name}.npz")
    for key, part in (("w", w), ("v", v)):
        values = torch.from_numpy(arrays[key].reshape(-1).copy()).to(device)
        zeros = torch.zeros_like(values)
        made = twin.encode(values, zeros).collect()
        assert made.payload.numpy().tobytes() == part.payload
        assert list(made.ends) == part.ends
        out = torch.full_like(values, 7)
        read = torch.frombuffer(bytearray(part.payload), dtype=torch.uint8)
        twin.decode(EncodedPart(read, part.ends, (), part.scalars), out).check()
        np.testing.assert_array_equal(bits(out), bits(decoded[f"{key}.300"].reshape(-1)))


def decode(device, codec, coded):
    """A part made by hand, by the twin."""
    from deltawire.torch.gpu.parts import EncodedPart
    from deltawire.torch.gpu.twins import twin

    chosen = ",".join(
        f"{name}={value}" for name, value in coded.parameters.items() if name != "positions"
    )
    made = twin(f"{codec.name}:{chosen}" if chosen else codec.name)
    payload = torch.frombuffer(bytearray(b"".join(coded.chunks)) or bytearray(1), dtype=torch.uint8)
    ends = np.cumsum([len(chunk) for chunk in coded.chunks]).tolist()
    part = EncodedPart(payload[: ends[-1] if ends else 0], ends, (), coded.scalars)
    out = torch.full((coded.count,), 7.0, device=device)
    made.decode(part, out).check()
    return out


def has_no_twin(codec, coded):
    """Whether a part has a form that only the CPU reads."""
    is_interpolative = any(chunk[:1] == b"\x1f" for chunk in coded.chunks)
    return codec.name in ("topk", "sbc") and (
        is_interpolative or coded.parameters.get("values") == "2bit"
    )


@pytest.mark.parametrize("module", WITH_VALUES, ids=lambda module: module.CODEC.name)
def test_parts_made_by_hand(device, module):
    for name, coded, expected in parts_of_codec(device, module, "GOOD"):
        if has_no_twin(module.CODEC, coded):
            with pytest.raises(DeltawireError, match="interpolative|values=2bit"):
                decode(device, module.CODEC, coded)
            continue
        got = decode(device, module.CODEC, coded).cpu().numpy() + np.float32(0)
        np.testing.assert_array_equal(got, np.array(expected, np.float32), name)


@pytest.mark.parametrize("module", WITH_VALUES, ids=lambda module: module.CODEC.name)
def test_parts_that_are_refused(device, module):
    for name, coded, kind in parts_of_codec(device, module, "REFUSED"):
        with pytest.raises(DeltawireError) as refused:
            decode(device, module.CODEC, coded)
        assert refused.value.code in (kind, "InvalidArgument"), name
        if refused.value.code == "InvalidArgument":
            assert has_no_twin(module.CODEC, coded), name
