"""The digest of means on a device: sums, which any order of adding gives alike."""

import torch

_ELEMENTS = 1 << 22  # at a time, so that temporary memory is bounded
_FACTOR = 0x9E3779B1 - 2**32


class MeanDigest:
    """Two 64-bit sums over the bits of float32 values and their places, modulo 2^64.

    A value that differs changes the first sum for certain; the second, which mixes bits and places
    in another way, tells apart what would cancel out in the first.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._odd = torch.empty(0, dtype=torch.int32, device="cpu")  # 1, 3, 5, ...

    def of(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Both sums, on the device."""
        words = values.view(torch.int32)
        if len(self._odd) < min(len(words), _ELEMENTS):
            self._odd = torch.arange(
                1, 2 * min(len(words), _ELEMENTS), 2, dtype=torch.int32, device=self._device
            )
        sums = [torch.zeros((), dtype=torch.int64, device=self._device) for _ in range(2)]
        for first in range(0, len(words), _ELEMENTS):
            block = words[first : first + _ELEMENTS]
            places = self._odd[: len(block)] + _as_int32(2 * first)
            sums[0] += (block * places).sum(dtype=torch.int64)
            sums[1] += ((block ^ places) * _FACTOR).sum(dtype=torch.int64)
        return sums


def _as_int32(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31
