"""3lc on a device."""

import numpy as np
import torch

from deltawire.errors import corrupt, make_error
from deltawire.torch.gpu.codec_twin import Twin
from deltawire.torch.gpu.kernels import threelc_parts as many
from deltawire.torch.gpu.kernels.bit_streams import RICE_BOUNDS
from deltawire.torch.gpu.kernels.launching import INTERPRETED, constant, launch
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment
from deltawire.torch.gpu.parts import INFINITY, EncodedPart

CHUNK = 40960
BYTES = 8192  # of a chunk in mode 0, without its first byte
SLOT = BYTES + 4
ROW = 320
ROWS_OF_CHUNK = CHUNK // ROW
ROWS = 128 if INTERPRETED else 8  # of a program
LISTED_ROWS = 128 if INTERPRETED else 8
RUN_BYTES = 8192 if INTERPRETED else 1024  # at a time
CODES = 8192 if INTERPRETED else 512  # at a time


class ThreeLC(Twin):
    """Three values, five to a byte; zero runs, or positions where few digits aren't 0."""

    scalars = 1
    chunk_elements = CHUNK
    slot_bytes = SLOT
    greatest_scalar = INFINITY - 1

    def _read(self, parameters: dict[str, str]) -> None:
        self._s = float(np.float32(parameters["s"]))
        self._runs = parameters["runs"] == "on"
        self._positions = self._runs and parameters["mode"] == "auto"

    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """By two launches, and three more where positions are coded."""
        chunks, device = len(segment.chunks), batch.out.device
        found = torch.empty(chunks * ROWS_OF_CHUNK, dtype=torch.int32, device=device)
        base = torch.empty(chunks * BYTES, dtype=torch.uint8, device=device)
        which = (batch.table, segment.chunks)
        slots = (batch.out, batch.begins, batch.sizes)
        launch(
            many.quantize_parts,
            chunks * (ROWS_OF_CHUNK // ROWS),
            *(*which, batch.facts, base, found, self._s),
            KIND=segment.kind,
            SCALED=batch.scaled,
            COUNTS=self._positions,
            ROWS=ROWS,
            warps=4,
        )
        runs = {"RUNS": self._runs, "BLOCK": RUN_BYTES}
        launch(many.write_parts_runs, chunks, *which, base, *slots, **runs)
        if not self._positions:
            return
        ends = torch.cumsum(found, 0)
        listed = torch.empty(chunks * CHUNK, dtype=torch.int32, device=device)
        words = torch.zeros(chunks * (BYTES // 4 + 1), dtype=torch.int32, device=device)
        bounds = constant(RICE_BOUNDS, torch.int64, device)
        launch(
            many.list_parts_positions,
            chunks * (ROWS_OF_CHUNK // LISTED_ROWS),
            *(*which, base, ends, batch.sizes, bounds, listed),
            ROWS=LISTED_ROWS,
        )
        codes = (*which, listed, ends, bounds, words, *slots)
        launch(many.write_parts_positions, chunks, *codes, BLOCK=CODES)
        launch(many.copy_parts_positions, chunks, words, *slots, BLOCK=1024)

    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """By three launches: runs, positions, values."""
        chunks, device = len(segment.chunks), batch.data.device
        base = torch.full((chunks * BYTES,), 121, dtype=torch.uint8, device=device)
        which = (batch.table, segment.chunks)
        read = (*which, batch.spans, batch.data)
        launch(many.expand_parts_runs, chunks, *read, base, batch.errors, BLOCK=RUN_BYTES)
        words = base.view(torch.int32)
        launch(many.expand_parts_positions, chunks, *read, words, batch.errors, warps=1)
        launch(
            many.write_parts_values,
            chunks * (ROWS_OF_CHUNK // ROWS),
            *(*which, base, batch.errors, batch.scale),
            ADD=batch.add,
            ROWS=ROWS,
            warps=4,
        )

    def refuse(self, values, residual, most: int, first: int) -> None:
        """As every twin; and refuses values whose m is beyond float32."""
        super().refuse(values, residual, most, first)
        if first >= INFINITY:
            raise make_error("Range", f"m is beyond float32: scale {self.name} down or use s=1")

    def _check(self, part: EncodedPart, count: int) -> None:
        if part.scalars[0] >= INFINITY:
            raise corrupt(f"3lc: m is {part.scalars[0]:#x}")
