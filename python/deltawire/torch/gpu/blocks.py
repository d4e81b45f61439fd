"""blockint, fp8 and fp4 on a device."""

import numpy as np
import torch

from deltawire.torch.gpu.fixed import FixedTwin, decode_by, encode_by
from deltawire.torch.gpu.kernels import blocks as kernels
from deltawire.torch.gpu.kernels.launching import BLOCK, blocks, launch
from deltawire.torch.gpu.kernels.magnitude import find_largest
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment
from deltawire.torch.gpu.parts import Encoding


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

    def _encode(
        self, values: torch.Tensor, residual: torch.Tensor | None, after: torch.Tensor
    ) -> Encoding:
        n, device = values.numel(), values.device
        shape = self._shape()
        status = torch.zeros(4, dtype=torch.int32, device=device)
        r = find_largest(values, residual, status)
        ends = self.ends_on(device, n)
        payload = torch.empty(self.ends(n)[-1], dtype=torch.uint8, device=device)
        launch(
            kernels.encode,
            blocks(n, self.unit_elements),
            *(values, r, after, status, payload, n),
            HAS_R=residual is not None,
            **shape,
        )
        return self._encoded(payload, ends, status, values, residual)

    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """By one launch."""
        encode_by(kernels.encode_parts, torch.uint8, segment, batch, **self._shape())

    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """By one launch."""
        decode_by(kernels.decode_parts, torch.uint8, segment, batch, **self._shape())

    def _decode(self, payload, ends, scalars, out, scale, add, error) -> None:
        n, shape = out.numel(), self._shape()
        launch(
            kernels.decode,
            blocks(n, self.unit_elements),
            *(payload, out, error, float(np.float32(scale)), n),
            ADD=add,
            **shape,
        )

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
