"""Gradients that were made up, with all that a file may trip over, and how they are compared."""

import numpy as np
from deltawire.traces import TracedGradient, TracedTensor

TENSORS = (
    TracedTensor("conv.weight", (3, 2, 5)),
    TracedTensor("scale", ()),
    TracedTensor("embedding", (1000, 4), pairs=True),
    TracedTensor("fc.weight", (40, 30)),
)
LOSSLESS = "gcomp:lossless=on"


def awkward_floats(shape, seed: int) -> np.ndarray:
    """Among them what a codec may trip over: NaN with a payload, Inf, -0, subnormals."""
    values = np.random.default_rng(seed).normal(0, 1e-3, shape).astype(np.float32)
    flat = values.reshape(-1)
    odd = np.array([0x7FC12345, 0xFF800000, 0x80000000, 1, 0x7F7FFFFF, 0xFFA00001], np.uint32)
    flat[: len(odd)] = odd[: flat.size].view(np.float32)
    return values


def gradients(seed: int, significance: bool = True) -> list[TracedGradient | None]:
    keys = np.array([0, 7, 8, 3999], np.int64)
    found = []
    for i, tensor in enumerate(TENSORS):
        shape = keys.shape if tensor.pairs else tensor.shape
        found.append(
            TracedGradient(
                tensor,
                awkward_floats(shape, seed + i),
                keys if tensor.pairs else None,
                awkward_floats(shape, -seed % 97 + i) if significance else None,
            )
        )
    return found


def same_bits(a, b) -> bool:
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def assert_same(found, expected) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.tensor == b.tensor
            assert same_bits(a.values, b.values)
            assert same_bits(a.keys, b.keys)
            assert same_bits(a.significance, b.significance)
