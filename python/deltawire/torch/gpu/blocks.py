"""blockint, fp8 and fp4 on a device."""

import torch

from deltawire.torch.gpu.fixed import FixedTwin, decode_by, encode_by
from deltawire.torch.gpu.kernels import blocks as kernels
from deltawire.torch.gpu.kernels.launching import BLOCK, blocks
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment


class BlockTwin(FixedTwin):
    """A codec with a number for each block of elements, and a code for each element."""

    kind: str
    block: int
    head_bytes: int
    code_bits = 8

    def bytes_of(self, elements):
        """A head for each block, then the codes."""
        return blocks(elements, self.block) * self.head_bytes + blocks(elements * self.code_bits, 8)

    @property
    def unit_elements(self) -> int:
        """As many blocks as a program's elements have, or one."""
        return max(BLOCK, self.block)

    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """By one launch."""
        encode_by(kernels.encode_parts, torch.uint8, segment, batch, **self._shape())

    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """By one launch."""
        decode_by(kernels.decode_parts, torch.uint8, segment, batch, **self._shape())

    def _shape(self) -> dict[str, object]:
        return {
            "CODE": self.kind,
            "HEAD": self.head_bytes,
            "BITS": self.code_bits,
            "BLOCK": self.block,
            "ROWS": self.unit_elements // self.block,
        }


class BlockInt(BlockTwin):
    """255 or 15 evenly spaced values up to the largest of each block."""

    name = "blockint"
    head_bytes = 4

    def _read(self, parameters: dict[str, str]) -> None:
        self.block = int(parameters["block"])
        self.code_bits = int(parameters["bits"])
        self.kind = f"int{self.code_bits}"


class Minifloats(BlockTwin):
    """Floats of few bits with a power of two for each block."""

    head_bytes = 1

    def _read(self, parameters: dict[str, str]) -> None:
        self.block = int(parameters["block"])
        self.kind = parameters["format"]


class FP8(Minifloats):
    """e4m3 or e5m2."""

    name = "fp8"


class FP4(Minifloats):
    """e2m1 or e3m0, two to a byte."""

    name = "fp4"
    code_bits = 4
