"""Means in which each rank counts by its weight."""

import ctypes
import math
from typing import Any

import numpy as np

from deltawire import arguments
from deltawire.errors import invalid

LEAST_ELEMENTS = 2  # of what a codec may touch: the weights are an array of one element
_NAME = "(weights)"  # no parameter has it
_MOST = float(np.finfo(np.float32).max)


def check_weight(weight: object) -> float:
    """The weight; raises InvalidArgumentError unless it is a number, 0 or more, that float32
    holds."""
    arguments.check_finite("weight", weight)
    if not 0 <= weight <= _MOST:
        raise invalid(f"weight={weight!r} must be 0 or more, and at most {_MOST:.3g}")
    return float(weight)


class WeightsFirst:
    """One step's sum(weight * array) / sum(weight) over the ranks, or the plain mean if all weights
    are 0. So that a rank without a weight knows what it has to send, the weights' mean is made
    first.

    Attributes:
        means: what the ranks exchange and, in the end, its means.
    """

    def __init__(self, arrays: dict[str, np.ndarray], weight: float) -> None:
        self._arrays = arrays
        self._weight = np.float32(weight)
        self._mean = np.empty(1, np.float32)
        self.means = {name: np.empty_like(array) for name, array in arrays.items()}

    def begin(self) -> list[tuple]:
        """The tensor to exchange first, in each attempt of the step."""
        self._mean[0] = self._weight
        return [(_NAME, self._mean.ctypes.data, self._mean.nbytes, [1])]

    def weigh(self) -> None:
        """Fills `means`, once the weights are exchanged."""
        factor = self._weight if self._mean[0] > 0 else np.float32(1)
        for name, array in self._arrays.items():
            np.multiply(array, factor, out=self.means[name])

    def end(self) -> None:
        """Writes the result to the arrays."""
        factor = np.float32(1) / self._mean[0] if self._mean[0] > 0 else np.float32(1)
        for name, array in self._arrays.items():
            np.multiply(self.means[name], factor, out=array)


class Weighted:
    """One step's sum(weight * values) / sum(weight) over the ranks, as the quotient of two plain
    means: of weight * values, and of the weights. Residuals are of weight * values, too, so that a
    residual counts by the weight of its step.

    Args:
        tensors: (name, address, bytes, shape) of each, float32; multiplied by the weight at once.
        weight: of this rank.
        device: a `DeviceParts` in whose memory they are; None: they are in the process's.

    Attributes:
        tensors: those to exchange.
    """

    def __init__(self, tensors: list[tuple], weight: float, device: Any = None) -> None:
        self._places = [(address, math.prod(shape)) for _, address, _, shape in tensors]
        self._device = device
        self._weight = np.full(1, weight, np.float32)
        self._at = self._weight.ctypes.data
        if device is not None:
            self._at = device.allocate(1)
            device.upload(self._weight, self._at)
        self.tensors = [*tensors, (_NAME, self._at, self._weight.nbytes, [1])]
        self._multiply(self._weight[0])

    def end(self) -> None:
        """Makes the weighted mean of the means."""
        if self._device is not None:
            self._device.download(self._at, self._weight)
        mean = self._weight[0]
        if mean > 0:
            self._multiply(np.float32(1) / mean)

    def release(self) -> None:
        """Gives the device's memory back, after the step."""
        if self._device is not None:
            self._device.release(self._at)

    def _multiply(self, factor: np.float32) -> None:
        if factor == 1:
            return
        for address, count in self._places:
            if self._device is not None:
                self._device.multiply(address, count, float(factor))
            else:
                whole = (ctypes.c_float * count).from_address(address)
                values = np.frombuffer(whole, np.float32)
                np.multiply(values, factor, out=values)
