"""signsgd, decoded as its spec.md says."""

from collections.abc import Mapping

import numpy as np
from spec_codec import SWITCH, Codec, Coded, one_of
from spec_hashes import require

INFINITY = 0x7F800000
ONE = 0x3F800000


def decode(coded: Coded) -> np.ndarray:
    """Give each element the scale with its sign."""
    require(coded.scalars[0] < INFINITY, "Corrupt", "the scale")
    bare = coded.parameters.get("scale") == "one"
    require(not bare or coded.scalars[0] == ONE, "Corrupt", "the scale of a bare sign")
    size = -(-coded.count // 8)
    require(len(coded.chunk) >= size, "Truncated", "fewer bits than elements")
    require(len(coded.chunk) <= size, "Corrupt", "more bytes than the elements need")
    bits = np.unpackbits(np.frombuffer(coded.chunk, "u1"), bitorder="little")
    require(not bits[coded.count :].any(), "Corrupt", "a set bit behind the last element")
    require(coded.scalars[0] != 0 or not bits.any(), "Corrupt", "a sign without a scale")
    return np.where(bits[: coded.count] == 1, -coded.number(), coded.number())


def check_together(parameters: Mapping[str, str]) -> None:
    """Refuse bare signs with error feedback."""
    require(parameters != {"feedback": "on", "scale": "one"}, "Corrupt", "bare signs with feedback")


CODEC = Codec(
    "signsgd",
    13,
    decode,
    chunk_elements=65536,
    scalars=1,
    parameters={"feedback": SWITCH, "scale": one_of("mean", "one")},
    check=check_together,
)
