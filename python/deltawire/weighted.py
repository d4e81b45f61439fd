"""Means in which each rank counts by its weight."""

import ctypes
import math

import numpy as np

from deltawire import arguments
from deltawire.errors import make_error

LEAST_ELEMENTS = 2  # of what a codec may touch: the weights are an array of one element
_NAME = "(weights)"  # no parameter has it
_MOST = float(np.finfo(np.float32).max)


def check_weight(weight: object) -> float:
    """The weight; raises InvalidArgumentError unless it is a number, 0 or more, that float32
    holds."""
    arguments.check_finite("weight", weight)
    if not 0 <= weight <= _MOST:
        raise make_error(
            "InvalidArgument", f"weight={weight!r} must be 0 or more, and at most {_MOST:.3g}"
        )
    return float(weight)


class Weighted:
    """One step's sum(weight * values) / sum(weight) over the ranks, as the quotient of two plain
    means: of weight * values, and of the weights. Residuals are of weight * values, too, so that
    what a codec holds back counts by the weight of its step.

    Args:
        tensors: (name, address, shape) of each, float32; multiplied by the weight at once.
        weight: of this rank.

    Attributes:
        tensors: what is to be exchanged.
    """

    def __init__(self, tensors: list[tuple], weight: float) -> None:
        self._values = [_values_at(address, shape) for _, address, shape in tensors]
        self._weight = np.full(1, weight, np.float32)
        self.tensors = [*tensors, (_NAME, self._weight.ctypes.data, [1])]
        self._multiply(self._weight[0])

    def end(self) -> None:
        """Makes the weighted mean of the means."""
        mean = self._weight[0]
        if mean > 0:
            self._multiply(np.float32(1) / mean)

    def _multiply(self, factor: np.float32) -> None:
        if factor != 1:
            for values in self._values:
                np.multiply(values, factor, out=values)


def _values_at(address: int, shape) -> np.ndarray:
    count = math.prod(shape)
    return np.frombuffer((ctypes.c_float * count).from_address(address), np.float32)
