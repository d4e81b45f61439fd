"""fp32, bf16 and fp16 on a device."""

import numpy as np
import torch

from deltawire.torch.gpu.fixed import FixedTwin, decode_by, encode_by
from deltawire.torch.gpu.kernels import narrow_floats as kernels
from deltawire.torch.gpu.kernels.launching import BLOCK, blocks, launch
from deltawire.torch.gpu.kernels.magnitude import find_largest
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment
from deltawire.torch.gpu.parts import Encoding


class NarrowFloats(FixedTwin):
    """A codec that sends each value as a float of its own."""

    code: torch.dtype

    def bytes_of(self, elements):
        """A code each."""
        return elements * self.code.itemsize

    def _read(self, parameters: dict[str, str]) -> None:
        assert not parameters

    def _encode(
        self, values: torch.Tensor, residual: torch.Tensor | None, after: torch.Tensor
    ) -> Encoding:
        n, device = values.numel(), values.device
        status = torch.zeros(4, dtype=torch.int32, device=device)
        codes = torch.empty(n, dtype=self.code, device=device)
        r = values if residual is None else residual
        if self.finite_only:
            find_largest(values, residual, status)
        launch(
            kernels.encode,
            blocks(n, BLOCK),
            *(values, r, after, status, codes, n),
            HAS_R=residual is not None,
            CODE=self.name,
            BLOCK=BLOCK,
        )
        payload = codes.view(torch.uint8)
        return self._encoded(payload, self.ends_on(device, n), status, values, residual)

    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """By one launch."""
        constants = {"CODE": self.name, "BLOCK": BLOCK}
        encode_by(kernels.encode_parts, self.code, segment, batch, **constants)

    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """By one launch."""
        constants = {"SCALED": batch.scale != 1, "CODE": self.name, "BLOCK": BLOCK}
        decode_by(kernels.decode_parts, self.code, segment, batch, **constants)

    def _decode(self, payload, ends, scalars, out, scale, add, error) -> None:
        n = out.numel()
        launch(
            kernels.decode,
            blocks(n, BLOCK),
            *(payload.clone().view(self.code), out, error, float(np.float32(scale)), n),
            ADD=add,
            SCALED=scale != 1,
            CODE=self.name,
            BLOCK=BLOCK,
        )


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
