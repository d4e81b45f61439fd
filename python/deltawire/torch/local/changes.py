"""The memory of weight changes: where the exchange reads them, and what it replaces by means."""

from collections.abc import Sequence

import torch

from deltawire.torch.core.module_parameters import row_major_shape

_BYTES = 4  # of a change, which is float32
_ALIGNED = 16  # elements; each tensor begins at a multiple


class Changes:
    """A tensor of float32 for each of a model's parameters, on its device. Those of a bucket share
    one block of memory, which is copied to the CPU and back at once.

    Args:
        names: of the parameters.
        parameters: their shapes and devices count.
        fragments: which are exchanged separately, as slices of the parameters.
        bucket_bytes: approximate size of a bucket. No tensor is divided, and a bucket is on one
            device.

    Attributes:
        tensors: in the parameters' order, row-major.
        host_bytes: of the largest fragment's blocks.
    """

    def __init__(
        self,
        names: Sequence[str],
        parameters: Sequence[torch.Tensor],
        fragments: Sequence[slice],
        bucket_bytes: int,
    ) -> None:
        self._names = list(names)
        self._buckets = [_cut(parameters, part, bucket_bytes) for part in fragments]
        self._blocks: list[list[torch.Tensor]] = []
        self.tensors: list[torch.Tensor] = []
        for buckets in self._buckets:
            self._blocks.append([self._block(parameters[part]) for part in buckets])
        self.host_bytes = max(_BYTES * sum(b.numel() for b in blocks) for blocks in self._blocks)

    def _block(self, parameters: Sequence[torch.Tensor]) -> torch.Tensor:
        rooms = [-(-each.numel() // _ALIGNED) * _ALIGNED for each in parameters]
        block = torch.zeros(sum(rooms), dtype=torch.float32, device=parameters[0].device)
        for part, each in zip(block.split(rooms), parameters, strict=True):
            self.tensors.append(part[: each.numel()].view(each.shape))
        return block

    def bucket_count(self, fragment: int) -> int:
        """Number of buckets in a fragment (>= 1)."""
        return len(self._buckets[fragment])

    def bucket(self, fragment: int, bucket: int) -> tuple[slice, torch.Tensor]:
        """(its parameters, its block)."""
        return self._buckets[fragment][bucket], self._blocks[fragment][bucket]

    def at(
        self, fragment: int, bucket: int, memory: torch.Tensor
    ) -> list[tuple[str, int, int, tuple[int, ...]]]:
        """(name, address, bytes, shape) of each of a bucket's tensors in `memory`, which is its
        block or a copy of it."""
        part, block = self.bucket(fragment, bucket)
        moved = memory.data_ptr() - block.data_ptr()
        return [
            (name, change.data_ptr() + moved, change.nbytes, row_major_shape(change))
            for name, change in zip(self._names[part], self.tensors[part], strict=True)
        ]


def device_borders(names: Sequence[str], parameters: Sequence[torch.Tensor]) -> list[str]:
    """The names of the parameters before which a model's device changes."""
    devices = [each.device for each in parameters]
    return [
        name
        for name, before, here in zip(names[1:], devices, devices[1:], strict=False)
        if before != here
    ]


def _cut(parameters: Sequence[torch.Tensor], part: slice, bucket_bytes: int) -> list[slice]:
    """Groups neighbours into buckets."""
    slices, start, size = [], part.start, 0
    for i in range(part.start, part.stop):
        size += _BYTES * parameters[i].numel()
        is_last = i == part.stop - 1 or parameters[i + 1].device != parameters[i].device
        if size >= bucket_bytes or is_last:
            slices.append(slice(start, i + 1))
            start, size = i + 1, 0
    return slices
