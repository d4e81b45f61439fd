"""blockint, fp8 and fp4 on a device."""

import numpy as np
import torch

from deltawire.torch.gpu.codec_twin import Twin
from deltawire.torch.gpu.fixed import kept_on
from deltawire.torch.gpu.kernels import blocks as kernels
from deltawire.torch.gpu.kernels.launching import INTERPRETED, blocks, launch
from deltawire.torch.gpu.kernels.magnitude import find_largest
from deltawire.torch.gpu.parts import EncodedPart, Encoding, check_fixed_ends

CHUNK = 65536
ELEMENTS = 65536 if INTERPRETED else 2048  # of a program, or one block


class BlockTwin(Twin):
    """A codec with a number for each block of elements, and a code for each element."""

    chunk_elements = CHUNK
    kind: str
    block: int
    head_bytes: int
    code_bits = 8

    def _ends(self, count: int) -> list[int]:
        ends, end = [], 0
        for first in range(0, count, CHUNK):
            n = min(count - first, CHUNK)
            end += blocks(n, self.block) * self.head_bytes + blocks(n * self.code_bits, 8)
            ends.append(end)
        return ends

    def _encode(
        self, values: torch.Tensor, residual: torch.Tensor | None, after: torch.Tensor
    ) -> Encoding:
        n, device = values.numel(), values.device
        shape = self._shape()
        status = torch.zeros(4, dtype=torch.int32, device=device)
        r = find_largest(values, residual, status)
        ends = self._ends(n)
        payload = torch.empty(ends[-1], dtype=torch.uint8, device=device)
        launch(
            kernels.encode,
            blocks(n, shape["ROWS"] * self.block),
            *(values, r, after, status, payload, n),
            HAS_R=residual is not None,
            **shape,
        )
        return self._encoded(payload, kept_on(device, tuple(ends)), status, values, residual)

    def _check(self, part: EncodedPart, count: int) -> None:
        check_fixed_ends(part, self._ends(count))

    def _decode(self, payload, ends, scalars, out, scale, add, error) -> None:
        n, shape = out.numel(), self._shape()
        launch(
            kernels.decode,
            blocks(n, shape["ROWS"] * self.block),
            *(payload, out, error, float(np.float32(scale)), n),
            ADD=add,
            **shape,
        )

    def _shape(self) -> dict[str, object]:
        rows = max(ELEMENTS // self.block, 1)
        return {
            "KIND": self.kind,
            "HEAD": self.head_bytes,
            "BITS": self.code_bits,
            "BLOCK": self.block,
            "ROWS": rows,
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
