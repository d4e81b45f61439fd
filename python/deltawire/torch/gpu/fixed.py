"""Parts whose chunks end where their number of elements says."""

import functools

import torch


def fixed_ends(count: int, chunk_elements: int, element_bytes: int) -> list[int]:
    """Where the chunks of a part end."""
    whole = range(chunk_elements, count + chunk_elements, chunk_elements)
    return [min(count, elements) * element_bytes for elements in whole]


@functools.lru_cache(maxsize=256)
def ends_on(
    device: torch.device, count: int, chunk_elements: int, element_bytes: int
) -> torch.Tensor:
    """The same on a device, kept: a model has few sizes of parts."""
    return kept_on(device, tuple(fixed_ends(count, chunk_elements, element_bytes)))


@functools.lru_cache(maxsize=256)
def kept_on(device: torch.device, ends: tuple[int, ...]) -> torch.Tensor:
    """Ends on a device, kept: the copy waits for it, and can't be captured in a CUDA graph."""
    return torch.tensor(ends, dtype=torch.int64).to(device)
