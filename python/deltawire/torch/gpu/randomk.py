"""randomk on a device."""

import numpy as np
import torch

from deltawire.errors import make_error
from deltawire.torch.gpu.codec_twin import Twin
from deltawire.torch.gpu.int8 import GREATEST_STEP
from deltawire.torch.gpu.kernels import drawn_values as kernels
from deltawire.torch.gpu.kernels.launching import INTERPRETED, blocks, launch
from deltawire.torch.gpu.kernels.sparse_parts import clear_parts
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment
from deltawire.torch.gpu.parts import INFINITY, EncodedPart, check_fixed_ends
from deltawire.torch.gpu.sparse import VALUE_BITS, share_of

CHUNK = 16384  # values
BLOCK = CHUNK if INTERPRETED else 1024  # values of a program


class RandomK(Twin):
    """Values at places that a seed draws."""

    name = "randomk"
    scalars = 2
    fixed = True
    draws = True

    def _read(self, parameters: dict[str, str]) -> None:
        self._share = float(np.float32(parameters["k"]))
        self._unbiased = parameters["unbiased"] == "on"
        self._bits = VALUE_BITS[parameters.get("values", "fp32")]

    @property
    def slot_bytes(self) -> int:
        """Bytes of a whole chunk."""
        return CHUNK * self._bits // 8

    def chunks_of(self, counts: np.ndarray) -> np.ndarray:
        """As many as what is drawn needs."""
        return -(-share_of(self._share, counts) // CHUNK)

    def chunk_bytes(self, counts: np.ndarray, chunks: np.ndarray) -> np.ndarray:
        """Bytes of these chunks of parts of so many elements."""
        drawn = share_of(self._share, counts) - chunks * CHUNK
        return np.minimum(drawn, CHUNK) * (self._bits // 8)

    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """By three launches: what is drawn, sums, codes."""
        chunks, device = len(segment.chunks), batch.out.device
        values = torch.empty(chunks * CHUNK, dtype=torch.int32, device=device)
        most = torch.zeros(len(batch.table), dtype=torch.int32, device=device)
        drawn = (batch.table, segment.chunks, batch.facts, values, most)
        grid, share = (chunks, CHUNK // BLOCK), self._fraction()
        kind = {"KIND": segment.kind, "SCALED": batch.scaled}
        form = {"UNBIASED": self._unbiased, "BLOCK": BLOCK}
        launch(kernels.draw_values, grid, *drawn, *share, **kind, **form)
        units = (batch.table, segment.units, batch.facts)
        launch(kernels.keep_sums, len(segment.units), *units, BLOCK=self.unit_elements, **kind)
        form = {"VALUE_BITS": self._bits, "BLOCK": BLOCK}
        launch(kernels.write_values, grid, *drawn, batch.out, *share, **form)

    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """By one launch, and one more to decode without adding."""
        if not batch.add:
            units = segment.units
            launch(clear_parts, len(units), batch.table, units, BLOCK=self.unit_elements)
        launch(
            kernels.decode_values,
            (len(segment.chunks), CHUNK // BLOCK),
            *(batch.table, segment.chunks, batch.data, batch.errors, batch.scale),
            *self._fraction(),
            VALUE_BITS=self._bits,
            ADD=batch.add,
            BLOCK=BLOCK,
        )

    def _fraction(self) -> tuple[int, int]:
        """The share of the elements as a whole number of parts of 2 to a power, and that power."""
        over, under = self._share.as_integer_ratio()
        return over, under.bit_length() - 1

    def refuse(self, values, residual, most: int, first: int) -> None:
        """As every twin; and refuses values that scaling takes beyond float32."""
        sums = values.float() if residual is None else values.float() + residual
        if most >= INFINITY and bool(torch.isfinite(sums).all()):
            text = "a value is beyond float32 once it is scaled up: scale the tensor down or use "
            raise make_error("Range", f"{text}unbiased=off")
        super().refuse(values, residual, most, first)

    def may_be(self, counts, chunks, ends, scalars) -> bool:
        """As every twin; and the step is one."""
        steps = scalars[:, 1]
        return bool((steps <= self._greatest_step()).all()) and super().may_be(
            counts, chunks, ends, scalars
        )

    def _greatest_step(self) -> int:
        return GREATEST_STEP if self._bits == 8 else 0

    def _check(self, part: EncodedPart, count: int) -> None:
        if part.scalars[1] > self._greatest_step():
            raise make_error("Corrupt", f"randomk: the step is {part.scalars[1]:#x}")
        drawn, width = int(share_of(self._share, count)), self._bits // 8
        if len(part.ends) != blocks(drawn, CHUNK):
            text = f"randomk: {len(part.ends)} chunks for {drawn} values"
            raise make_error("Corrupt", text)
        wanted = [min(drawn, CHUNK * (i + 1)) * width for i in range(len(part.ends))]
        check_fixed_ends(part, wanted)
