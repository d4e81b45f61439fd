"""gcomp on a device."""

import numpy as np
import torch

from deltawire.errors import make_error
from deltawire.torch.gpu.codec_twin import Twin
from deltawire.torch.gpu.kernels import gcomp_decoding as decoding
from deltawire.torch.gpu.kernels import gcomp_encoding as encoding
from deltawire.torch.gpu.kernels import gcomp_heads as heading
from deltawire.torch.gpu.kernels import gcomp_tables as tables
from deltawire.torch.gpu.kernels.launching import INTERPRETED, constant, launch
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment
from deltawire.torch.gpu.parts import EncodedPart

CHUNK = 262144  # elements
BLOCKS = 8  # of a chunk
MORE_BYTES = 200  # than values have, at most
VALUES = 16384 if INTERPRETED else 1024  # at a time


class GComp(Twin):
    """Coded exponents, and mantissas that are cut alike."""

    name = "gcomp"
    chunk_elements = CHUNK
    slot_bytes = 4 * CHUNK + MORE_BYTES
    finite_only = False
    in_place = False  # values are looked at twice

    def _read(self, parameters: dict[str, str]) -> None:
        if parameters["lossless"] == "on" or parameters.get("values", "fp32") != "fp32":
            text = f"{self.spec} has no twin for tensors on a GPU: lossless must be off, and values"
            raise make_error("InvalidArgument", f"{text} must be fp32")
        cut = parameters["cut"]
        self._level = 0 if cut == "auto" else int(cut) // 3

    def takes(self, dtype: torch.dtype) -> bool:
        """float32 alone: values of 16 bits have chunks of another form."""
        return dtype == torch.float32

    def chunk_bytes(self, counts: np.ndarray, chunks: np.ndarray) -> np.ndarray:
        """Bytes of these chunks at most."""
        return 4 * np.minimum(counts - chunks * CHUNK, CHUNK) + MORE_BYTES

    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """By four launches: counts, tables, blocks, chunks."""
        chunks, device = len(segment.chunks), batch.out.device

        def room(numbers: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.empty(chunks * numbers, dtype=dtype, device=device)

        which, level = (batch.table, segment.chunks), {"LEVEL": self._level}
        form = {"KIND": segment.kind, "SCALED": batch.scaled, **level}
        counts, codes, info = room(tables.COUNTS), room(tables.SYMBOLS), room(4)
        heads, blocks = room(tables.HEAD_BYTES, torch.uint8), room(2 * BLOCKS)
        launch(tables.count_values, chunks, *which, counts, BLOCK=VALUES, **form)
        shapes = constant(tables.SHAPES, torch.int32, device)
        launch(tables.make_tables, chunks, *which, counts, shapes, codes, heads, info, **level)
        begin, size = segment.room.start, segment.room.stop - segment.room.start
        scratch = torch.empty(2 * size, dtype=torch.uint8, device=device)
        coded = (scratch, batch.begins, begin, blocks)
        grid = (chunks, BLOCKS)
        launch(encoding.encode_blocks, grid, *which, info, codes, *coded, warps=2, **form)
        out = (batch.out, batch.sizes)
        launch(encoding.put_blocks, grid, *which, info, heads, *coded, *out, BLOCK=VALUES, **form)

    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """By two launches: heads, blocks."""
        chunks, device = len(segment.chunks), batch.data.device
        heads = torch.empty(chunks * heading.HEADS, dtype=torch.int32, device=device)
        symbols = torch.empty(chunks * BLOCKS * 128, dtype=torch.int32, device=device)
        read = (batch.table, segment.chunks, batch.spans, batch.data)
        shapes = constant(tables.SHAPES, torch.int32, device)
        launch(heading.read_heads, chunks, *read, shapes, heads, batch.errors)
        launch(
            decoding.decode_blocks,
            (chunks, BLOCKS),
            *(*read, heads, symbols, batch.errors, batch.scale),
            SCALED=batch.scale != 1,
            ADD=batch.add,
            BLOCK=VALUES,
            warps=2,
        )

    def _check(self, part: EncodedPart, count: int) -> None:
        """Nothing but what the chunks say."""
