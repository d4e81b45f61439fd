"""blockint, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded, one_of
from spec_hashes import require

BLOCKS = ("64", "128", "256", "512", "1024", "2048", "4096")
LARGEST = {"8": (127, 0x7C010203), "4": (7, 0x7E124924)}


def decode(coded: Coded) -> np.ndarray:
    """Multiply each code with the step of its block."""
    bits, block = coded.parameters["bits"], int(coded.parameters["block"])
    most, largest_step = LARGEST[bits]
    blocks = -(-coded.count // block)
    size = 4 * blocks + -(-coded.count * int(bits) // 8)
    require(len(coded.chunk) >= size, "Truncated", "the chunk ends before its elements")
    require(len(coded.chunk) <= size, "Corrupt", "bytes behind the last element")
    steps = np.frombuffer(coded.chunk, "<u4", blocks)
    require(bool((steps <= largest_step).all()), "Corrupt", "a step below 0 or too large")
    codes = np.frombuffer(coded.chunk, "u1", offset=4 * blocks)
    if bits == "4":
        codes = np.stack([codes & 15, codes >> 4], axis=1).reshape(-1)
        require(not codes[coded.count :].any(), "Corrupt", "a set bit behind the last element")
        codes = (codes[: coded.count] ^ 8) - np.uint8(8)
    numbers = codes.view("i1")
    each = np.repeat(steps, block)[: coded.count]
    require(bool((numbers >= -most).all()), "Corrupt", "the unused code")
    require(not numbers[each == 0].any(), "Corrupt", "a code where the step is 0")
    return numbers.astype("<f4") * each.view("<f4")


CODEC = Codec(
    "blockint",
    19,
    decode,
    chunk_elements=65536,
    parameters={"bits": one_of("8", "4"), "block": one_of(*BLOCKS)},
)
