"""Parts whose chunks end where their number of elements says."""

from abc import abstractmethod

import numpy as np
import torch

from deltawire.torch.gpu.codec_twin import Twin
from deltawire.torch.gpu.kernels.launching import launch
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment
from deltawire.torch.gpu.parts import EncodedPart, check_fixed_ends

CHUNK = 65536  # elements


class FixedTwin(Twin):
    """A codec that cuts parts by their elements, and sends as many bytes of each value."""

    chunk_elements = CHUNK
    fixed = True

    @abstractmethod
    def bytes_of(self, elements):
        """Bytes of a chunk of so many elements: a number or an array."""

    @property
    def slot_bytes(self) -> int:
        """Bytes of a whole chunk."""
        return self.bytes_of(CHUNK)

    def chunk_bytes(self, counts: np.ndarray, chunks: np.ndarray) -> np.ndarray:
        """Bytes of these chunks of parts of so many elements."""
        return self.bytes_of(np.minimum(counts - chunks * CHUNK, CHUNK))

    def ends(self, count: int) -> tuple[int, ...]:
        """Where the chunks of a part end."""
        whole, rest = divmod(count, CHUNK)
        ends = [self.slot_bytes * i for i in range(1, whole + 1)]
        return (*ends, self.slot_bytes * whole + self.bytes_of(rest)) if rest else tuple(ends)

    def _check(self, part: EncodedPart, count: int) -> None:
        check_fixed_ends(part, self.ends(count))


def encode_by(
    kernel, code: torch.dtype, segment: Segment, batch: EncodeBatch, **constants: object
) -> None:
    """Encodes a segment by one launch, a unit a program.

    Args:
        kernel: `encode_parts` of a codec's kernels.
        code: what its pointer to the payloads points to.
        segment, batch: as `Twin.encode_parts` has them.
        constants: the kernel's own.
    """
    launch(
        kernel,
        len(segment.units),
        *(batch.table, segment.units, batch.facts, batch.out.view(code)),
        KIND=segment.kind,
        SCALED=batch.scaled,
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
        **constants,
    )
