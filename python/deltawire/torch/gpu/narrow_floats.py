"""fp32, bf16 and fp16 on a device."""

import numpy as np
import torch

from deltawire.torch.gpu.codec_twin import Twin
from deltawire.torch.gpu.fixed import decode_by, encode_by, ends_on, fixed_ends
from deltawire.torch.gpu.kernels import narrow_floats as kernels
from deltawire.torch.gpu.kernels.launching import BLOCK, blocks, launch
from deltawire.torch.gpu.kernels.magnitude import find_largest
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment
from deltawire.torch.gpu.parts import EncodedPart, Encoding, check_fixed_ends

CHUNK = 65536


class NarrowFloats(Twin):
    """A codec that sends each value as a float of its own."""

    chunk_elements = CHUNK
    code: torch.dtype

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
            KIND=self.name,
            BLOCK=BLOCK,
        )
        payload = codes.view(torch.uint8)
        ends = ends_on(device, n, CHUNK, codes.element_size())
        return self._encoded(payload, ends, status, values, residual)

    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """By one launch."""
        encode_by(kernels.encode_parts, self.code, segment, batch, CODE=self.name)

    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """By one launch."""
        scaled = batch.scale != 1
        decode_by(kernels.decode_parts, self.code, segment, batch, SCALED=scaled, CODE=self.name)

    def _check(self, part: EncodedPart, count: int) -> None:
        check_fixed_ends(part, fixed_ends(count, CHUNK, self.code.itemsize))

    def _decode(self, payload, ends, scalars, out, scale, add, error) -> None:
        n = out.numel()
        launch(
            kernels.decode,
            blocks(n, BLOCK),
            *(payload.clone().view(self.code), out, error, float(np.float32(scale)), n),
            ADD=add,
            SCALED=scale != 1,
            KIND=self.name,
            BLOCK=BLOCK,
        )


class FP32(NarrowFloats):
    """The values themselves."""

    name = "fp32"
    code = torch.int32
    code_bytes, slot_bytes = 4, 4 * CHUNK
    finite_only = False


class BF16(NarrowFloats):
    """The upper half of each value."""

    name = "bf16"
    code = torch.int16
    code_bytes, slot_bytes = 2, 2 * CHUNK
    finite_only = False


class FP16(NarrowFloats):
    """IEEE half floats, saturated."""

    name = "fp16"
    code = torch.int16
    code_bytes, slot_bytes = 2, 2 * CHUNK
