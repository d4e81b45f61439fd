"""topk, decoded as its spec.md says, all chunks of a part together."""

import struct

from spec_codec import SHARE, Codec, Coded
from spec_sparse import PARAMETERS, decode

CODEC = Codec("topk", 14, decode, scalars=1, parameters={"k": SHARE, **PARAMETERS})

TWO = [0, 2, 0, 1, 0, 0, 0, 0b01]  # positions 1 and 3
HALF = struct.unpack("<I", struct.pack("<f", 0.5))[0]


def of(values: str, code: list[int], step: int = 0, count: int = 5) -> Coded:
    """Make a part of one chunk."""
    return Coded([bytes(code)], count, (step, 0), {"k": "0.3", "values": values})


GOOD = {
    "nothing": (of("fp32", [0, 0, 0]), [0] * 5),
    "float32": (of("fp32", [*TWO, 0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0]), [0, 1, 0, -2, 0]),
    "bfloat16": (of("bf16", [*TWO, 0x80, 0x3F, 0, 0xC0]), [0, 1, 0, -2, 0]),
    "steps": (of("int8", [*TWO, 2, 129], HALF), [0, 1, 0, -63.5, 0]),
    "a code of 0": (of("int8", [*TWO, 0, 1], HALF), [0, 0, 0, 0.5, 0]),
    "-0 is written nowhere": (of("bf16", [*TWO, 0, 0x80, 0, 0xC0]), [0, 0, 0, -2, 0]),
    "interpolative": (
        of("int8", [31, 2, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 1], HALF),
        [0.5, 0, 0, 0, 0.5],
    ),
}
REFUSED = {
    "infinity": (of("fp32", [*TWO, 0, 0, 0x80, 0x7F, 0, 0, 0, 0xC0]), "Corrupt"),
    "bfloat16 of NaN": (of("bf16", [*TWO, 0xC0, 0x7F, 0, 0xC0]), "Corrupt"),
    "minus 128": (of("int8", [*TWO, 2, 128], HALF), "Corrupt"),
    "a code without a step": (of("int8", [*TWO, 2, 0], 0), "Corrupt"),
    "a negative step": (of("int8", [*TWO, 2, 1], HALF | 1 << 31), "Corrupt"),
    "too large a step": (of("int8", [*TWO, 2, 1], 0x7C010204), "Corrupt"),
    "a step of float32": (of("fp32", [*TWO, 0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0], 1), "Corrupt"),
    "a step of nothing": (of("int8", [0, 0, 0], HALF), "Corrupt"),
    "a value short": (of("fp32", [0, 2, 0, 1, 0, 0, 0]), "Truncated"),
    "a byte more": (of("int8", [*TWO, 2, 129, 0], HALF), "Corrupt"),
    "a short head": (of("int8", [0, 0]), "Truncated"),
}
