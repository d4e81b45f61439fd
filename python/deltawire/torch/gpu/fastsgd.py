"""fastsgd on a device."""

import dataclasses

import numpy as np
import torch

from deltawire.errors import make_error
from deltawire.torch.gpu.codec_twin import Twin
from deltawire.torch.gpu.kernels import fastsgd_codes as codes
from deltawire.torch.gpu.kernels import fastsgd_decoding as decoding
from deltawire.torch.gpu.kernels import fastsgd_encoding as encoding
from deltawire.torch.gpu.kernels.launching import BLOCK, INTERPRETED, blocks, constant, launch
from deltawire.torch.gpu.kernels.sparse_parts import check_parts_order, clear_parts
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment
from deltawire.torch.gpu.parts import INFINITY, EncodedPart

CHUNK = 16384  # pairs
LARGEST_CODE = 2047
MOST_BYTES = 12  # of a chunk's head, and of the last bytes of its three streams
VALUES = 4096 if INTERPRETED else 2048  # at a time


@dataclasses.dataclass(frozen=True)
class Plan:
    """What encoding parts of the same sizes keeps, on the device.

    Attributes:
        parts: their numbers, int32.
        rows: codes.PLAN_COLUMNS numbers for every part of the batch up to the last of these, int64.
        elements: of all of these.
    """

    parts: torch.Tensor
    rows: torch.Tensor
    elements: int


class FastSGD(Twin):
    """Pairs of short gaps between keys, and of logarithms of values; small values are dropped."""

    name = "fastsgd"
    scalars = 1
    chunk_positions = CHUNK
    greatest_scalar = INFINITY - 1
    packed = True
    unit_elements = 65536  # whose magnitudes are summed together

    def _read(self, parameters: dict[str, str]) -> None:
        if parameters.get("keys", "flags") != "flags":
            text = f"{self.spec} has no twin for tensors on a GPU: its keys must be flags"
            raise make_error("InvalidArgument", text)
        tau = parameters["tau"]
        self._keep = float(np.float32(parameters["keep"])) if tau == "auto" else None
        self._limit = LARGEST_CODE if tau == "auto" else int(tau)
        self._flag_bits = int(parameters["l"])
        base, powers = float(np.float32(parameters["b"])), [1.0]
        for _ in range(LARGEST_CODE):
            powers.append(powers[-1] * base)  # as the spec has it, infinity included
        self._powers = tuple(powers)

    @property
    def slot_bytes(self) -> int:
        """More than a chunk takes; chunks lie one directly after another."""
        return int(self.chunk_bytes(np.array([1 << 32]), np.array([0]))[0])

    def chunks_of(self, counts: np.ndarray) -> np.ndarray:
        """As many as sending everything takes."""
        return -(-counts // CHUNK)

    def chunk_bytes(self, counts: np.ndarray, chunks: np.ndarray) -> np.ndarray:
        """Bytes of these chunks, of which a part's sum is what the part takes at most: spec.md has
        that bound, at the end of section 5."""
        longest = np.minimum(np.frexp(counts)[1], 32)
        gap_bits = self._flag_bits + -(-longest // (1 << self._flag_bits))
        bits = 1 + self._limit.bit_length() + gap_bits
        return MOST_BYTES + -(-np.minimum(counts - chunks * CHUNK, CHUNK) * bits // 8)

    def plan(self, parts: np.ndarray, counts: np.ndarray, device: torch.device) -> Plan:
        """Where each part's blocks and pairs are, and how many are wanted."""
        rows = np.zeros((int(parts[-1]) + 1, codes.PLAN_COLUMNS), np.int64)
        of_blocks = -(-counts // self.unit_elements)
        rows[parts, 0] = np.cumsum(of_blocks) - of_blocks
        rows[parts, 1] = np.cumsum(counts) - counts
        rows[parts, 2] = np.ceil((self._keep or 0.0) * counts)
        numbers = torch.from_numpy(parts.astype(np.int32)).to(device)
        return Plan(numbers, torch.from_numpy(rows).to(device), int(counts.sum()))

    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """By six launches: sums, codebooks, pairs of blocks and of parts, sizes of chunks, chunks;
        two more to choose a threshold."""
        plan, chunks, device = segment.plan, len(segment.chunks), batch.out.device
        values, cuts = self._codebooks(segment, batch)
        listed = torch.empty(plan.elements, dtype=torch.int32, device=device)
        found = torch.empty(len(segment.units), dtype=torch.int32, device=device)
        which = (batch.table, segment.units, plan.rows, batch.facts)
        form = {**self._form(segment, batch), "LOG": self._limit.bit_length()}
        launch(encoding.list_pairs, len(found), *which, values, cuts, listed, found, **form)
        ends = torch.cumsum(found, 0)
        pairs = torch.empty(plan.elements, dtype=torch.int64, device=device)
        which = (segment.units, plan.rows, listed, found, ends, pairs)
        launch(encoding.join_pairs, len(found), *which, BLOCK=VALUES)
        heads = torch.empty(chunks, dtype=torch.int32, device=device)
        which = (batch.table, segment.chunks, plan.rows, ends, pairs)
        form = {"FLAG_BITS": self._flag_bits, "BLOCK": VALUES}
        launch(encoding.measure_chunks, chunks, *which, batch.sizes, heads, **form)
        batch.out[segment.room].zero_()
        words = batch.out.view(torch.int32)
        ends = torch.cumsum(batch.sizes, 0)
        where = (heads, ends, batch.begins, segment.room.start, words, len(words))
        launch(encoding.write_chunks, chunks, *which, *where, **form)

    def _form(self, segment: Segment, batch: EncodeBatch) -> dict[str, object]:
        return {"KIND": segment.kind, "SCALED": batch.scaled, "BLOCK": VALUES}

    def _codebooks(self, segment: Segment, batch: EncodeBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """What the codes of each part of the batch stand for, and the least magnitude that is
        sent: bits of float32."""
        plan, units, device = segment.plan, len(segment.units), batch.out.device
        log, parts = {"LOG": self._limit.bit_length()}, len(plan.parts)
        sums = torch.empty(units, dtype=torch.float64, device=device)
        which = (batch.table, segment.units)
        launch(codes.sum_blocks, units, *which, sums, **self._form(segment, batch))
        values = torch.empty(len(plan.rows) << log["LOG"], dtype=torch.int32, device=device)
        cuts = torch.empty(len(plan.rows), dtype=torch.int32, device=device)
        powers = constant(self._powers, torch.float64, device)
        made = (plan.parts, batch.table, plan.rows, sums, powers, batch.facts, values, cuts)
        launch(codes.make_codebooks, parts, *made, LIMIT=self._limit, **log)
        if self._keep is not None:
            counts = torch.zeros_like(values)
            form = {**self._form(segment, batch), **log}
            launch(codes.count_codes, units, *which, values, counts, **form)
            launch(
                codes.choose_thresholds, parts, plan.parts, plan.rows, counts, values, cuts, **log
            )
        return values, cuts

    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """By three launches, and one more to decode without adding."""
        chunks, device = len(segment.chunks), batch.data.device
        listed = torch.empty(chunks * CHUNK, dtype=torch.int64, device=device)
        counts = torch.empty(chunks, dtype=torch.int32, device=device)
        lasts = torch.empty(chunks, dtype=torch.int64, device=device)
        powers = constant(self._powers, torch.float64, device)
        which = (batch.table, segment.chunks)
        read = (*which, batch.spans, batch.data, powers, listed, counts)
        form = {"LIMIT": self._limit, "FLAG_BITS": self._flag_bits, "BLOCK": VALUES}
        launch(decoding.read_pairs, chunks, *read, lasts, batch.errors, **form)
        order = (*which, listed, counts, lasts, batch.errors)
        launch(check_parts_order, chunks, *order, SCALAR=0, warps=1)
        if not batch.add:
            grid = (len(segment.units), blocks(self.unit_elements, BLOCK))
            launch(clear_parts, grid, batch.table, segment.units, BLOCK=BLOCK)
        grid = (chunks, blocks(CHUNK, VALUES))
        launch(
            decoding.put_values,
            grid,
            *(*read, batch.errors, batch.scale),
            ADD=batch.add,
            BLOCK=VALUES,
        )

    def refuse(self, values, residual, most: int, first: int) -> None:
        """As every twin; and refuses values whose sum is beyond float32."""
        super().refuse(values, residual, most, first)
        if first >= INFINITY:
            text = "the sum of all magnitudes is beyond float32: fastsgd codes values as fractions"
            raise make_error("Range", f"{text} of it; scale the tensor down")

    def _check(self, part: EncodedPart, count: int) -> None:
        if part.scalars[0] >= INFINITY:
            raise make_error("Corrupt", f"fastsgd: the sum is {part.scalars[0]:#x}")
