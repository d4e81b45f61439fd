"""fp32, bf16 and fp16 on a device."""

import numpy as np
import torch

from deltawire.torch.gpu.codec_twin import Twin
from deltawire.torch.gpu.fixed import ends_on, fixed_ends
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

    def _encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        out = batch.out.view(self.code)
        launch(
            kernels.encode_parts,
            len(segment.units),
            *(batch.table, segment.units, batch.facts, out),
            KIND=segment.kind,
            CODE=self.name,
            SCALED=batch.scaled,
            BLOCK=BLOCK,
        )

    def _decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        data = batch.data.view(self.code)
        launch(
            kernels.decode_parts,
            len(segment.units),
            *(batch.table, segment.units, data, batch.errors, batch.scale),
            ADD=batch.add,
            SCALED=batch.scale != 1,
            CODE=self.name,
            BLOCK=BLOCK,
        )

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
