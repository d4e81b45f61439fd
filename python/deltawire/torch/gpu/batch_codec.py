"""What parts that are coded together ask of their codec's twin."""

from abc import ABC, abstractmethod

import numpy as np
import torch

from deltawire.torch.gpu.kernels.launching import BLOCK
from deltawire.torch.gpu.kernels.part_tables import numbers_of
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment
from deltawire.torch.gpu.parts import INFINITY, name_not_finite


class BatchCodec(ABC):
    """Encodes and decodes the parts of a batch. A part that is coded alone is a batch of one.

    Attributes:
        name: the codec's name.
    """

    name: str
    scalars = 0  # how many numbers the codec has for a part
    chunk_elements = 0  # 0: chunks depend on the values
    chunk_positions = 0  # that a chunk sends at most, where their number depends on the values
    finite_only = True
    greatest_scalar = 0xFFFFFFFF  # of a part that is coded with others
    slot_bytes = 0  # that a chunk takes at most; 0: it codes one part at a time
    in_place = True  # the new residual may replace the old one while it is being made
    fixed = False  # chunks are as long as their number of elements says
    unit_elements = BLOCK  # that a program codes of parts that are coded together

    def refuse(
        self, values: torch.Tensor, residual: torch.Tensor | None, most: int, first: int
    ) -> None:
        """Raises DeltawireError ("NotFinite", "Range") for values that the codec refuses.

        Args:
            most: bits of the largest magnitude.
            first: the first scalar.
        """
        if self.finite_only and most >= INFINITY:
            name_not_finite(self.name, values, residual)

    def chunks_of(self, counts: np.ndarray) -> np.ndarray:
        """How many chunks it makes of parts of so many elements, at most."""
        return -(-counts // self.chunk_elements)

    def chunk_bytes(self, counts: np.ndarray, chunks: np.ndarray) -> np.ndarray:
        """How many bytes these chunks of parts of so many elements have: exactly if the twin is
        `fixed`, else at most; of a chunk that is not the last `slot_bytes`."""
        return np.full(len(counts), self.slot_bytes)

    def plan(self, parts: np.ndarray, counts: np.ndarray, device: torch.device) -> object:
        """What it keeps of a batch to be encoded, as long as its parts have these sizes."""
        return None

    @abstractmethod
    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """Encodes many parts at once. The facts say how large their values are; their scalars are
        filled in."""

    @abstractmethod
    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """Decodes many parts at once: parts that `may_be` has found good."""

    def may_be(self, counts: np.ndarray, chunks: np.ndarray, ends: np.ndarray, scalars) -> bool:
        """Whether an encoder may have written parts with so many elements, chunks, ends of all
        these chunks, and scalars, as far as these say; if not, `check` says what is wrong."""
        if not self.may_have(chunks, counts) or scalars[:, self.scalars :].any():
            return False
        if self.scalars and scalars[:, 0].max() > self.greatest_scalar:
            return False
        sizes = np.diff(ends, prepend=0)
        firsts = np.cumsum(chunks) - chunks
        sizes[firsts] = ends[firsts]
        if self.fixed:
            wanted = self.chunk_bytes(np.repeat(counts, chunks), numbers_of(chunks))
            return bool((sizes == wanted).all())
        return bool((sizes > 0).all())

    def may_have(self, chunks: np.ndarray | int, counts: np.ndarray | int) -> bool:
        """Whether parts of so many elements may have so many chunks."""
        most = -(-counts // (self.chunk_elements or self.chunk_positions))
        fewest = most if self.chunk_elements else np.minimum(most, 1)
        return bool(np.all((fewest <= chunks) & (chunks <= most)))
