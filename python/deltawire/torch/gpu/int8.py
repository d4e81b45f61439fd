"""int8 on a device."""

import torch

from deltawire.errors import make_error
from deltawire.torch.gpu.fixed import FixedTwin, decode_by, encode_by
from deltawire.torch.gpu.kernels import int8 as kernels
from deltawire.torch.gpu.kernels.launching import BLOCK
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment
from deltawire.torch.gpu.parts import EncodedPart

GREATEST_STEP = 0x7C010203


class Int8(FixedTwin):
    """255 evenly spaced values, a byte each."""

    name = "int8"
    scalars = 1
    greatest_scalar = GREATEST_STEP

    def bytes_of(self, elements):
        """A byte each."""
        return elements

    def _read(self, parameters: dict[str, str]) -> None:
        assert not parameters

    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """By one launch."""
        encode_by(kernels.encode_parts, torch.int8, segment, batch, BLOCK=BLOCK)

    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """By one launch."""
        decode_by(kernels.decode_parts, torch.int8, segment, batch, BLOCK=BLOCK)

    def _check(self, part: EncodedPart, count: int) -> None:
        super()._check(part, count)
        if part.scalars[0] > GREATEST_STEP:
            raise make_error("Corrupt", f"int8: the step is {part.scalars[0]:#x}")
