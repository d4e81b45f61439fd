"""The golden files: which inputs, encoded how. Inputs are made by integer arithmetic alone, so that
they are the same on every machine and under every version of NumPy."""

import struct

import numpy as np

GOLDEN_SEED = 12345


def whole_numbers(count: int, seed: int = GOLDEN_SEED) -> np.ndarray:
    """`count` 31-bit numbers of a linear congruential generator, as int64."""
    values = np.empty(count, np.int64)
    state = seed
    for i in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        values[i] = state
    return values


def bell(count: int) -> np.ndarray:
    """Roughly normal float32 values: sums of four uniform numbers, cubed spread in the tails."""
    sums = whole_numbers(4 * count).reshape(count, 4).sum(axis=1)
    return ((sums - 2**32) / 2**30).astype(np.float32)


def sparse(count: int, every: int) -> np.ndarray:
    """Mostly zeros; about one value in `every` is +1 or -1."""
    numbers = whole_numbers(count) >> 8
    values = np.where(numbers % 2 == 0, 1.0, -1.0)
    return np.where((numbers // 2) % every == 0, values, 0.0).astype(np.float32)


def edge_values() -> np.ndarray:
    """Zeros of both signs, subnormals, the smallest and largest magnitudes that 3LC takes."""
    bits = [
        0,
        1 << 31,
        1,
        (1 << 31) | 1,
        0x007FFFFF,
        0x00800000,
        0x3F800000,
        0xBF800000,
        0x7E000000,
        0xFE000000,
    ]
    return np.array([struct.unpack("<f", struct.pack("<I", b))[0] for b in bits], np.float32)


def not_finite() -> np.ndarray:
    """What only the codecs that carry NaN and Inf may see."""
    return np.array([1.0, np.nan, np.inf, -np.inf, -0.0, 3.0e38, 1e-45], np.float32)


INPUTS = {
    "paper": lambda: np.array([0.3, 0.1, -0.4, 0, 0.2, -0.1, -0.1, -0.1, 0, 0.3], np.float32),
    "bell": lambda: bell(1000).reshape(10, 100),
    "zeros": lambda: np.zeros(50000, np.float32),
    "sparse": lambda: sparse(50000, 200),
    "edge": edge_values,
    "tiny": lambda: np.full(7, 1e-45, np.float32),
    "scalar": lambda: np.array(-2.5, np.float32),
    "empty": lambda: np.zeros((0, 3), np.float32),
    "not_finite": not_finite,
}

THREELC = ["3lc", "3lc:s=1.75", "3lc:s=1.5,mode=paper", "3lc:runs=off"]

# (file stem, codec spec, input, min_elements)
CASES = [
    (
        f"{spec.replace(':', '_').replace(',', '_').replace('=', '-')}.{name}.min{least}",
        spec,
        name,
        least,
    )
    for spec, names in [
        *[
            (spec, ["paper", "bell", "zeros", "sparse", "edge", "tiny", "scalar", "empty"])
            for spec in THREELC
        ],
        ("sbc:p=0.01", ["paper", "bell", "zeros", "sparse", "edge", "tiny", "scalar", "empty"]),
        ("sbc:p=0.001", ["bell", "sparse"]),
        ("sbc:p=0.5", ["paper", "bell", "sparse", "edge"]),
        (
            "fastsgd",
            ["paper", "bell", "zeros", "sparse", "edge", "tiny", "scalar", "empty"],
        ),
        ("fastsgd:tau=128", ["paper", "bell", "sparse", "edge"]),
        ("fastsgd:b=2,tau=300,l=5", ["bell", "edge", "tiny"]),
        ("fastsgd:b=1.02,keep=0.9,l=1", ["bell", "edge"]),
        ("fp32", ["paper", "edge", "not_finite", "empty"]),
        ("bf16", ["paper", "bell", "edge", "not_finite"]),
    ]
    for name in names
    for least in ([0, 256] if name == "paper" and spec == "3lc" else [0])
]
