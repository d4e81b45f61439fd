"""blockint, decoded as its spec.md says."""

import struct

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

OF_8 = {"bits": "8", "block": "64"}
OF_4 = {"bits": "4", "block": "64"}


def part(step: float, codes: list[int], count: int, parameters: dict[str, str]) -> Coded:
    """Make a chunk of one block."""
    return Coded([struct.pack("<f", step) + bytes(codes)], count, parameters=parameters)


GOOD = {
    "8 bits": (part(0.5, [127, 129, 255, 0], 4, OF_8), [63.5, -63.5, -0.5, 0]),
    "4 bits": (part(0.5, [0x97, 0x0F], 3, OF_4), [3.5, -3.5, -0.5]),
    "a step of 0": (part(0, [0, 0], 2, OF_8), [0, 0]),
    "two blocks": (
        Coded([struct.pack("<2f", 1, 2) + bytes([1] * 65)], 65, parameters=OF_8),
        [1] * 64 + [2],
    ),
}
REFUSED = {
    "-128": (part(1, [0, 128], 2, OF_8), "Corrupt"),
    "-8": (part(1, [0x80], 2, OF_4), "Corrupt"),
    "a code without a step": (part(0, [0, 1], 2, OF_8), "Corrupt"),
    "padding": (part(1, [0x11], 1, OF_4), "Corrupt"),
    "a negative step": (part(-1, [0], 1, OF_8), "Corrupt"),
    "a step of -0": (part(-0.0, [0], 1, OF_8), "Corrupt"),
    "a step that is too large": (part(2.7e36, [0], 1, OF_8), "Corrupt"),
    "NaN": (part(float("nan"), [0], 1, OF_4), "Corrupt"),
    "too short": (part(1, [0], 2, OF_8), "Truncated"),
    "too long": (part(1, [0, 0], 2, OF_4), "Corrupt"),
}
