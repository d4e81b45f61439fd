"""fp8, decoded as its spec.md says."""

import numpy as np
from spec_codec import Codec, Coded, one_of
from spec_hashes import require

# Bits of mantissa, bias, code of the largest number, its exponent.
FORMATS = {"e4m3": (3, 7, 0x7E, 8), "e5m2": (2, 15, 0x7B, 15)}


def number(code: int, mantissa_bits: int, bias: int) -> float:
    """Give what a code stands for, without its scale."""
    exponent, mantissa = divmod(code & 0x7F, 1 << mantissa_bits)
    significand = mantissa / (1 << mantissa_bits) + (exponent > 0)
    return (-1.0) ** (code >> 7) * significand * 2.0 ** (max(exponent, 1) - bias)


def decode(coded: Coded) -> np.ndarray:
    """Multiply each code's number with the power of two of its block."""
    mantissa_bits, bias, largest, exponent = FORMATS[coded.parameters["format"]]
    block = int(coded.parameters["block"])
    blocks = -(-coded.count // block)
    require(len(coded.chunk) >= blocks + coded.count, "Truncated", "the chunk ends early")
    require(len(coded.chunk) <= blocks + coded.count, "Corrupt", "bytes behind the last code")
    scales = np.frombuffer(coded.chunk, "u1", blocks)
    codes = np.frombuffer(coded.chunk, "u1", offset=blocks)
    require(bool((scales <= 254 - exponent).all()), "Corrupt", "a scale that is too large")
    require(bool(((codes & 0x7F) <= largest).all()), "Corrupt", "a code that is not finite")
    numbers = np.array([number(code, mantissa_bits, bias) for code in range(256)])[codes]
    powers = np.repeat(2.0 ** (scales.astype("<f8") - 127), block)[: coded.count]
    return (numbers * powers).astype("<f4")


CODEC = Codec(
    "fp8",
    18,
    decode,
    chunk_elements=65536,
    parameters={
        "format": one_of(*FORMATS),
        "block": one_of("32", "64", "128", "256", "512", "1024"),
    },
)
