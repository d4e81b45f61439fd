"""fp32, bf16 and fp16 on a device."""

import torch

from deltawire.torch.gpu.fixed import FixedTwin, decode_by, encode_by
from deltawire.torch.gpu.kernels import narrow_floats as kernels
from deltawire.torch.gpu.kernels.launching import BLOCK
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment


class NarrowFloats(FixedTwin):
    """A codec that sends each value as a float of its own."""

    code: torch.dtype

    def bytes_of(self, elements):
        """A code each."""
        return elements * self.code.itemsize

    def _read(self, parameters: dict[str, str]) -> None:
        assert not parameters

    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """By one launch."""
        constants = {"CODE": self.name, "BLOCK": BLOCK}
        encode_by(kernels.encode_parts, self.code, segment, batch, **constants)

    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """By one launch."""
        constants = {"SCALED": batch.scale != 1, "CODE": self.name, "BLOCK": BLOCK}
        decode_by(kernels.decode_parts, self.code, segment, batch, **constants)


class FP32(NarrowFloats):
    """The values themselves."""

    name = "fp32"
    code = torch.int32
    finite_only = False


class BF16(NarrowFloats):
    """The upper half of each value."""

    name = "bf16"
    code = torch.int16
    finite_only = False


class FP16(NarrowFloats):
    """IEEE half floats, saturated."""

    name = "fp16"
    code = torch.int16
