"""Whole models as they are sent without loss, and patches between two versions of one."""

import math
from collections.abc import Mapping

import numpy as np

from deltawire import _core
from deltawire.channel import Channel
from deltawire.rounds.messages import Layout

CODECS = {"float32": "fp32", "bfloat16": "bf16"}  # that carry weights of a dtype unchanged
_MINUS_ZERO = 0x8000  # of bfloat16


def whole_channel(weights: str) -> Channel:
    """Carries whole models."""
    least = 256 if weights == "float32" else 0  # no bfloat16 weights are sent as float32
    return Channel(CODECS[weights], error_feedback=False, min_elements=least)


def packed(model: Mapping[str, np.ndarray], weights: str) -> np.ndarray:
    """All values of a float32 model in one new array: float32, or rounded to bfloat16 (to nearest,
    ties to even; -0 to 0, as in a sum of frames), as uint16."""
    values = np.concatenate([array.reshape(-1) for array in model.values()])
    if weights == "float32":
        return values
    bits = values.view(np.uint32)
    bits += ((bits >> 16) & 1) + np.uint32(0x7FFF)
    halves = (bits >> 16).astype(np.uint16)
    halves[halves == _MINUS_ZERO] = 0
    return halves


def unpacked(values: np.ndarray, layout: Layout) -> dict[str, np.ndarray]:
    """The float32 model; of float32 values as views, which share their memory."""
    if values.dtype != np.float32:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    model, start = {}, 0
    for tensor in layout:
        end = start + math.prod(tensor.shape)
        model[tensor.name] = values[start:end].reshape(tensor.shape)
        start = end
    return model


def make(old: np.ndarray, new: np.ndarray, weights: str) -> bytes:
    """The patch between two packed models."""
    return _core.make_patch(old.view(np.uint8), new.view(np.uint8), weights)


def patched(
    model: Mapping[str, np.ndarray], patch: bytes, weights: str, layout: Layout
) -> dict[str, np.ndarray]:
    """The model that the patch makes of this one, as new arrays.

    Raises:
        DeltawireError: "Mismatch": not made from this model; otherwise as `deltawire.patches.apply`
            raises.
    """
    old = packed(model, weights)
    new = np.empty_like(old)
    data = np.frombuffer(patch, np.uint8)
    _core.apply_patch(data, old.view(np.uint8), weights, new.view(np.uint8))
    return unpacked(new, layout)
