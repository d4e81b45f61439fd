"""The golden messages' parts, both ways; and broken ones."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from broken_parts import broken_parts, encoded
from deltawire import DeltawireError
from library import bits, parts_of
from spec_codecs import codec_of_spec, decode_coded
from spec_hashes import DecodeError

GOLDEN = Path(__file__).parents[2] / "golden"
CODECS = ["3lc", "int8", "topk", "sbc", "fp32", "bf16", "fp16", "fp8", "fp4", "blockint"]
SPECS = [
    *(*CODECS, "topk:k=0.3,values=int8", "topk:k=0.5", "topk:k=0.3,values=bf16", "sbc:p=0.2"),
    *("blockint:bits=4,block=64", "fp8:format=e5m2", "fp4:format=e3m0", "3lc:s=0.6"),
]


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


def decode(device, spec, part):
    """A part, by the twin of a canonical spec."""
    from deltawire.torch.gpu.parts import EncodedPart
    from deltawire.torch.gpu.twins import twin

    payload = torch.frombuffer(bytearray(b"".join(part.chunks)) or bytearray(1), dtype=torch.uint8)
    ends = np.cumsum([len(chunk) for chunk in part.chunks]).tolist()
    out = torch.full((part.count,), 7.0, device=device)
    made = twin(re.sub(",positions=\\w+", "", spec))
    made.decode(EncodedPart(payload[: ends[-1]], ends, (), part.scalars), out).check()
    return out.cpu().numpy() + np.float32(0)


def is_interpolative(part):
    """Whether a part has a form that only the CPU reads."""
    return any(chunk[:1] == b"\x1f" for chunk in part.chunks)


@pytest.mark.parametrize("spec", SPECS)
def test_broken_parts_are_judged_as_by_the_decoder_of_the_documents(device, spec):
    judged = set()
    for canonical, part in broken_parts(spec, 10):
        if spec.startswith(("topk", "sbc")) and is_interpolative(part):
            continue
        if device.type == "cpu" and part.count > 100:  # the interpreter reads codes one by one
            continue
        try:
            expected = decode_coded(codec_of_spec(canonical)[0], part) + np.float32(0)
        except DecodeError:
            expected = None
        if expected is not None:
            found = decode(device, canonical.decode(), part)
            np.testing.assert_array_equal(bits(found), bits(expected), str(part))
        else:
            with pytest.raises(DeltawireError) as refused:
                decode(device, canonical.decode(), part)
            assert refused.value.code in ("Corrupt", "Truncated"), part
        judged.add(expected is None)
    assert judged == {True, False}


def test_interpolative_positions_are_for_the_cpu(device):
    spec, part = encoded("topk:k=0.9,positions=auto", 400)
    assert is_interpolative(part)
    with pytest.raises(DeltawireError, match="interpolative") as refused:
        decode(device, spec.decode(), part)
    assert refused.value.code == "InvalidArgument"
