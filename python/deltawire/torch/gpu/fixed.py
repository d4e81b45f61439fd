"""Codecs whose chunks end where their number of elements says: fp32, bf16, fp16, int8, blockint,
fp8 and fp4 on a device. Each encodes by one launch, and decodes by one."""

from types import ModuleType

import numpy as np
import torch

from deltawire.errors import corrupt, make_error
from deltawire.torch.gpu.codec_twin import Twin
from deltawire.torch.gpu.kernels import blocks, int8, narrow_floats
from deltawire.torch.gpu.kernels.launching import BLOCK, launch
from deltawire.torch.gpu.kernels.launching import blocks as blocks_of
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment
from deltawire.torch.gpu.parts import EncodedPart

CHUNK = 65536  # elements
GREATEST_STEP = 0x7C010203  # of int8


class FixedTwin(Twin):
    """A codec that cuts parts by their elements, and sends as many bytes of each value.

    Attributes:
        kernels: have its `encode_parts` and `decode_parts`, a unit a program.
        code: what their pointers to the payloads point to.
    """

    chunk_elements = CHUNK
    fixed = True
    kernels: ModuleType
    code: torch.dtype

    def bytes_of(self, elements):
        """Bytes of a chunk of so many elements, a number or an array: a code each."""
        return elements * self.code.itemsize

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

    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """By one launch."""
        which = (batch.table, segment.units, batch.facts, batch.out.view(self.code))
        values = {"KIND": segment.kind, "SCALED": batch.scaled}
        launch(self.kernels.encode_parts, len(segment.units), *which, **values, **self._form())

    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """By one launch."""
        which = (batch.table, segment.units, batch.data.view(self.code), batch.errors, batch.scale)
        form = {"ADD": batch.add, **self._form(), **self._decoded_form(batch)}
        launch(self.kernels.decode_parts, len(segment.units), *which, **form)

    def _form(self) -> dict[str, object]:
        """Constants of both kernels."""
        return {"BLOCK": BLOCK}

    def _decoded_form(self, batch: DecodeBatch) -> dict[str, object]:
        """And of the decoding one."""
        return {}

    def _read(self, parameters: dict[str, str]) -> None:
        assert not parameters

    def _check(self, part: EncodedPart, count: int) -> None:
        for i, (end, wanted) in enumerate(zip(part.ends, self.ends(count), strict=True)):
            if end != wanted:
                code = "Truncated" if end < wanted else "Corrupt"
                raise make_error(code, f"chunk {i} ends at byte {end}, expected {wanted}")


# How kernels see the codes of values that are sent as floats of their own.
_NARROW = {"fp32": torch.int32, "bf16": torch.int16, "fp16": torch.int16}


class NarrowFloats(FixedTwin):
    """fp32, bf16 and fp16 (saturated): each value as a float of its own."""

    kernels = narrow_floats

    @property
    def code(self) -> torch.dtype:
        """By the codec."""
        return _NARROW[self.name]

    @property
    def finite_only(self) -> bool:
        """fp16 alone has no codes for other values."""
        return self.name == "fp16"

    def _form(self) -> dict[str, object]:
        return {"CODE": self.name, "BLOCK": BLOCK}

    def _decoded_form(self, batch: DecodeBatch) -> dict[str, object]:
        return {"SCALED": batch.scale != 1}


class Int8(FixedTwin):
    """255 evenly spaced values, a byte each."""

    kernels = int8
    code = torch.int8
    scalars = 1
    greatest_scalar = GREATEST_STEP

    def _check(self, part: EncodedPart, count: int) -> None:
        super()._check(part, count)
        if part.scalars[0] > GREATEST_STEP:
            raise corrupt(f"int8: the step is {part.scalars[0]:#x}")


class BlockTwin(FixedTwin):
    """A codec with a number for each block of elements, and a code for each element."""

    kernels = blocks
    code = torch.uint8
    kind: str
    block: int
    head_bytes: int
    code_bits = 8

    def bytes_of(self, elements):
        """A head for each block, then the codes."""
        heads = blocks_of(elements, self.block) * self.head_bytes
        return heads + blocks_of(elements * self.code_bits, 8)

    @property
    def unit_elements(self) -> int:
        """As many blocks as a program's elements have, or one."""
        return max(BLOCK, self.block)

    def _form(self) -> dict[str, object]:
        return {
            "CODE": self.kind,
            "HEAD": self.head_bytes,
            "BITS": self.code_bits,
            "BLOCK": self.block,
            "ROWS": self.unit_elements // self.block,
        }


class BlockInt(BlockTwin):
    """255 or 15 evenly spaced values up to the largest of each block."""

    head_bytes = 4

    def _read(self, parameters: dict[str, str]) -> None:
        self.block = int(parameters["block"])
        self.code_bits = int(parameters["bits"])
        self.kind = f"int{self.code_bits}"


class Minifloats(BlockTwin):
    """fp8 and fp4, two to a byte: floats of few bits with a power of two for each block."""

    head_bytes = 1

    def _read(self, parameters: dict[str, str]) -> None:
        self.block = int(parameters["block"])
        self.kind = parameters["format"]
        self.code_bits = 4 if self.name == "fp4" else 8
