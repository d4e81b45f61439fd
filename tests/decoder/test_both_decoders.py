"""Bytes that no encoder writes, behind good checksums: the library judges them as the decoder does
that was written from the documents. What both accept has the same values."""

from collections.abc import Callable
from dataclasses import replace

import deltawire
import numpy as np
import pytest
from broken_parts import broken_parts, encoded, file_of
from file_writing import coded, file_header, frame
from refusals import raised
from spec_codecs import CODECS
from spec_decoder import DecodeError, decode_file

SPECS = (
    # libzstd's versions differ in what they make of a broken stream.
    [name for name in CODECS if name != "zstd"]
    + ["fastsgd:b=2,tau=20", "fastsgd:b=2,tau=20,keys=auto"]
    + ["qsgd:levels=4,norm=max,bucket=64", "qsgd:levels=4,bucket=64,coding=omega", "3lc:runs=off"]
    + ["onebit:means=column", "gcomp:lossless=on", "sbc:p=0.2,positions=auto", "topk:k=0.5"]
    + ["topk:k=0.3,values=int8,positions=auto", "topk:k=0.3,values=bf16", "3lc:mode=paper"]
    + ["topk:k=0.3,values=2bit,chunk=64", "threshold:t=0.5,values=int8", "fp8:format=e5m2"]
    + ["blockint:bits=4,block=64", "fp4:format=e3m0"]
    + ["signsgd:feedback=off,scale=one"]
)


def judged(decode: Callable[[bytes], np.ndarray], file: bytes) -> bytes | None:
    """The values' bytes; None of a file that is refused as broken."""
    try:
        return decode(file).tobytes()
    except (DecodeError, deltawire.DeltawireError) as error:
        kind = error.kind if isinstance(error, DecodeError) else error.code
        assert kind in ("Corrupt", "Truncated")
        return None


@pytest.mark.parametrize("spec", SPECS)
def test_judge_alike(spec: str) -> None:
    accepted = set()
    for canonical, part in broken_parts(spec, 60):
        file = file_of(canonical, part)
        values = judged(decode_file, file)
        assert judged(deltawire.decode, file) == values, file.hex()
        accepted.add(values is not None)
    assert accepted == {True, False}


@pytest.mark.parametrize(
    "spec", ["fp32", "int8", "fastsgd:keep=0.9", "sbc:p=0.3", "topk:k=0.5,values=2bit"]
)
def test_judge_chunks_that_do_not_follow_alike(spec: str) -> None:
    canonical, part = encoded(spec, 80_000)
    first, second, *_ = chunks = part.chunks
    for others in ([second, first], [first], [second], [first, first], [*chunks, bytes(3)]):
        file = file_of(canonical, replace(part, chunks=others))
        assert judged(deltawire.decode, file) == judged(decode_file, file)


ONE = 0x3F800000
FIELDS = {
    "flags": (1, 4),
    "segments": (0, 2),
    "head_bytes": (27, 50, 1000),
    "frame_bytes": (52, (1 << 28) + 1),
    "step": (1, 1 << 64),
    "bucket": (1, 1 << 16),
    "scale": (0, ONE, 2 * ONE, 0x40000000, 0x7F800000),
    "world": (0, 2),
    **dict.fromkeys(("params_hash", "layout_hash", "stage", "seq", "rank"), (1,)),
}


@pytest.mark.parametrize("field", FIELDS)
def test_name_the_same_fault_of_a_frame(field: str) -> None:
    """With one wrong field, and a right checksum."""
    spec = b"3lc:s=1,mode=auto,runs=on"
    for value in FIELDS[field]:
        part = [coded(0, 5, [b"\0\x79"], (ONE,))]
        file = file_header(spec, (5,)) + frame(spec, 5, part, **{field: value})
        refused = raised(DecodeError, decode_file, file)
        assert refused.kind == raised(deltawire.DeltawireError, deltawire.decode, file).code
