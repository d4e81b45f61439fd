"""gcomp on a device."""

import copy

import numpy as np
import torch

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
    """Coded exponents, and mantissas that are cut alike or by their significance."""

    name = "gcomp"
    chunk_elements = CHUNK
    slot_bytes = 4 * CHUNK + MORE_BYTES
    finite_only = False
    in_place = False  # values are looked at twice

    def _read(self, parameters: dict[str, str]) -> None:
        self._unused = {"fp32": 0, "bf16": 16, "fp16": 13}[parameters.get("values", "fp32")]
        cut = 0 if parameters["cut"] == "auto" else int(parameters["cut"])
        level = max(cut - self._unused, 0) // (1 if self._unused else 3)
        self._is_lossless = parameters["lossless"] == "on"
        if self._is_lossless:
            self._rule = ("all", 0)
        else:
            self._rule = ("level" if level or self._unused else "whole", level)
        if parameters["cut"] == "auto":
            seeing = copy.copy(self)
            seeing._rule = ("seen", 8 // int(parameters["levels"]))
            self.with_significance = seeing

    def chunk_bytes(self, counts: np.ndarray, chunks: np.ndarray) -> np.ndarray:
        """Bytes of these chunks at most."""
        return 4 * np.minimum(counts - chunks * CHUNK, CHUNK) + MORE_BYTES

    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """By four launches: counts, tables, blocks, chunks."""
        chunks, device = len(segment.chunks), batch.out.device
        rule, level = self._rule
        each = 2 if rule == "all" and not self._unused else 1  # tables of a chunk

        def room(numbers: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.empty(chunks * numbers, dtype=dtype, device=device)

        which = (batch.table, segment.chunks)
        sent = {"UNUSED": self._unused, "RULE": rule, "LEVEL": level, "TABLES": each}
        form = {"KIND": segment.kind, "SCALED": batch.scaled, **sent}
        counts, codes = room(each * tables.COUNTS), room(each * tables.SYMBOLS)
        info, heads = room(each * tables.INFO), room(each * tables.HEAD_BYTES, torch.uint8)
        launch(tables.count_values, chunks, *which, counts, info, BLOCK=VALUES, **form)
        shapes = constant(tables.SHAPES, torch.int32, device)
        made = (codes, heads, info, room(tables.SCRATCH))
        launch(tables.make_tables, chunks, *which, counts, shapes, *made, **sent)
        blocks = room(2 * BLOCKS)
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
        halves = 0 if not self._unused else 2 if self._is_lossless else 3
        launch(heading.read_heads, chunks, *read, shapes, heads, batch.errors, HALVES=halves)
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
