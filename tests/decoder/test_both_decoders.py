"""Bytes that no encoder writes, behind good checksums: the library judges them as the decoder does
that was written from the documents. What both accept has the same values."""

import random
from collections.abc import Callable

import deltawire
import numpy as np
import pytest
from file_writing import coded, file_header, frame
from spec_codecs import CODECS
from spec_decoder import DecodeError, decode_file, parse_file_header, parse_frame

SPECS = (
    # libzstd's versions differ in which broken streams they find out.
    [name for name in CODECS if name != "zstd"]
    + ["fastsgd:b=2,tau=20", "fastsgd:b=2,tau=20,keys=auto", "signsgd:feedback=off,scale=one"]
    + ["qsgd:levels=4,norm=max,bucket=64", "qsgd:levels=4,bucket=64,coding=omega", "3lc:runs=off"]
    + ["onebit:means=column", "gcomp:lossless=on", "sbc:p=0.2,positions=auto", "topk:k=0.5"]
    + [
        "topk:k=0.3,values=int8,positions=auto",
        "topk:k=0.3,values=bf16",
        "blockint:bits=4,block=64",
    ]
    + ["topk:k=0.3,values=2bit,chunk=64", "threshold:t=0.5,values=int8", "3lc:mode=paper"]
)
SCALARS = [0, 1, 0x80000000, 0x7F800000, 0x7F7FFFFF, 0x7FC00000, 0xBF800000, 0x3F000000]


def judged(decode: Callable[[bytes], np.ndarray], file: bytes) -> bytes | None:
    """The values' bytes; None of a file that is refused as broken."""
    try:
        return decode(file).tobytes()
    except (DecodeError, deltawire.DeltawireError) as error:
        kind = error.kind if isinstance(error, DecodeError) else error.code
        assert kind in ("Corrupt", "Truncated")
        return None


def spoil(chunk: bytearray, scalars: list[int], draws: random.Random) -> int:
    """Changes a chunk or a scalar; returns how many elements more the part then says it has."""
    at = draws.randrange(min(len(chunk), draws.choice((8, 20, 1 << 20))))
    match draws.randrange(10):
        case 0 | 1 | 2 | 3:
            chunk[at] = draws.choice((0, 1, 128, 255, draws.randrange(256)))
        case 4 | 5:
            chunk[draws.randrange(len(chunk))] ^= 1 << draws.randrange(8)
        case 6:
            del chunk[draws.randrange(1, len(chunk) + 1) :]
        case 7:
            chunk += bytes([draws.choice((0, 1))]) * draws.randrange(1, 9)
        case 8 if scalars:
            scalars[draws.randrange(len(scalars))] = draws.choice(SCALARS)
        case _:
            return draws.choice((-1, 1, -8, 8, 1000))
    return 0


def files(spec: str, count: int, share: float, draws: random.Random) -> list[bytes]:
    """What the spec's encoder makes of values of which a share is not 0, broken in many ways."""
    made = np.random.default_rng(count)
    values = made.standard_normal(count, np.float32) * (made.random(count) < share)
    written = deltawire.encode(values.astype(np.float32), spec, min_elements=0)
    header = parse_file_header(written)
    parsed = parse_frame(written[header.header_bytes :])
    (segment,) = parsed.segments
    broken = []
    for _ in range(60):
        chunks = [bytearray(parsed.payload[each.begin : each.end]) for each in segment.chunks]
        scalars, elements = list(segment.scalars), count
        for _ in range(draws.choice((1, 1, 1, 2, 3))):
            elements = max(1, elements + spoil(draws.choice(chunks), scalars, draws))
        while scalars and scalars[-1] == 0:
            scalars.pop()
        part = coded(0, elements, chunks, tuple(scalars), codec=segment.codec_id)
        broken.append(file_header(header.spec, (elements,)) + frame(header.spec, elements, [part]))
    return broken


@pytest.mark.parametrize("spec", SPECS)
def test_judge_alike(spec: str) -> None:
    draws = random.Random(spec)
    accepted = []
    for count in (1, 7, 70, 400):
        for share in (1, 0.1):
            for file in files(spec, count, share, draws):
                values = judged(decode_file, file)
                assert judged(deltawire.decode, file) == values, file.hex()
                accepted.append(values is not None)
    assert {True, False} == set(accepted)


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
        with pytest.raises(DecodeError) as refused:
            decode_file(file)
        with pytest.raises(deltawire.DeltawireError) as refused_by_the_library:
            deltawire.decode(file)
        assert refused.value.kind == refused_by_the_library.value.code
