"""Parts whose chunks end where their number of elements says."""

import functools

import torch

from deltawire.torch.gpu.kernels.launching import BLOCK, launch
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment


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


def encode_by(
    kernel, code: torch.dtype, segment: Segment, batch: EncodeBatch, **constants: object
) -> None:
    """Encodes a segment by one launch, for a codec whose elements each give one code.

    Args:
        kernel: `encode_parts` of a codec's kernels.
        code: the dtype of a code.
        segment, batch: as `Twin.encode_parts` has them.
        constants: the kernel's own.
    """
    launch(
        kernel,
        len(segment.units),
        *(batch.table, segment.units, batch.facts, batch.out.view(code)),
        KIND=segment.kind,
        SCALED=batch.scaled,
        BLOCK=BLOCK,
        **constants,
    )


def decode_by(
    kernel, code: torch.dtype, segment: Segment, batch: DecodeBatch, **constants: object
) -> None:
    """Decodes a segment likewise; `kernel` is `decode_parts`."""
    data = batch.data.view(code)
    launch(
        kernel,
        len(segment.units),
        *(batch.table, segment.units, data, batch.errors, batch.scale),
        ADD=batch.add,
        BLOCK=BLOCK,
        **constants,
    )
