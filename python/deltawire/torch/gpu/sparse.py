"""topk and sbc on a device."""

from abc import abstractmethod

import numpy as np
import torch

from deltawire.errors import DeltawireError, corrupt, invalid
from deltawire.torch.gpu.codec_twin import Twin
from deltawire.torch.gpu.fixed import GREATEST_STEP
from deltawire.torch.gpu.kernels import positions, sent_values
from deltawire.torch.gpu.kernels.bit_streams import RICE_BOUNDS
from deltawire.torch.gpu.kernels.candidates import ROW
from deltawire.torch.gpu.kernels.launching import INTERPRETED, blocks, constant, launch
from deltawire.torch.gpu.kernels.selection import SUMMED, Plan, plan_of, select_in_parts
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment
from deltawire.torch.gpu.parts import INFINITY, EncodedPart

CHUNK = 16384  # positions
LANES = (1, 4, 8)
VALUE_BITS = {"fp32": 32, "bf16": 16, "int8": 8}
CODES = 16384 if INTERPRETED else 1024  # at a time


def share_of(share: float, counts):
    """floor(share * count + 1/2), but at least 1 and at most all: a number or an array. share: a
    float32 of at least 2^-20; counts below 2^32."""
    over, under = share.as_integer_ratio()
    return np.minimum(np.maximum((2 * over * counts + under) // (2 * under), 1), counts)


class SparseTwin(Twin):
    """A codec that sends the elements of largest magnitude."""

    scalars = 1
    chunk_positions = CHUNK
    sides = 1
    in_place = False  # values are looked at twice
    value_bits = 0
    scalar_rule = 0  # 1: the scalar is 0 where nothing is sent; 2: and only there
    share: float

    def _read(self, parameters: dict[str, str]) -> None:
        if parameters.get("positions", "golomb") != "golomb":
            raise self._refused("its positions must be golomb")
        self.share = float(np.float32(parameters.get("k") or parameters["p"]))

    def _refused(self, why: str) -> DeltawireError:
        return invalid(f"{self.spec} has no twin for tensors on a GPU: {why}")

    def _numbers(self, counts):
        """How many elements of so many are chosen, of each side: a number or an array."""
        return share_of(self.share, counts)

    def _slot_words(self, positions):
        """Words that a chunk of so many positions takes at most: a number or an array."""
        return (positions * (7 + self.value_bits // 8) + 29) // 4 + 3

    @property
    def slot_bytes(self) -> int:
        """Bytes that a whole chunk takes at most."""
        return 4 * self._slot_words(CHUNK)

    def chunks_of(self, counts: np.ndarray) -> np.ndarray:
        """As many as the positions need if every part has enough values that aren't 0."""
        return -(-self._numbers(counts) // CHUNK)

    def chunk_bytes(self, counts: np.ndarray, chunks: np.ndarray) -> np.ndarray:
        """Bytes of these chunks at most."""
        return 4 * self._slot_words(np.minimum(self._numbers(counts) - chunks * CHUNK, CHUNK))

    def plan(self, parts: np.ndarray, counts: np.ndarray, device: torch.device) -> Plan:
        """What is chosen of each part."""
        return plan_of(parts, counts, self._numbers(counts), self.sides, device)

    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """By 13 launches, three more for positions, and one to three for what is sent besides."""
        plan, device = segment.plan, batch.out.device
        kind = (self.sides, segment.kind, batch.scaled)
        listed, values, chosen = select_in_parts(plan, batch.table, *kind)
        sent = self._choose_in_parts(plan, batch, chosen, values)
        batch.out[segment.room].zero_()
        words = batch.out.view(torch.int32)
        bounds = constant(RICE_BOUNDS, torch.int64, device)
        where = (segment.chunks, plan.rows, sent, listed, bounds, words)
        slots = (batch.begins, batch.sizes, len(words))
        for lanes in LANES:
            rows = {"ROWS": max(CODES // lanes, 1), "LANES": lanes}
            launch(positions.encode_parts_positions, len(segment.chunks), *where, *slots, **rows)
        self._send_parts(segment, batch, sent, (listed, values))

    @abstractmethod
    def _choose_in_parts(self, plan: Plan, batch: EncodeBatch, chosen, values) -> torch.Tensor:
        """Of each part of the batch where those begin among what is listed that are sent, and how
        many they are; `values` are the bits of what is listed."""

    @abstractmethod
    def _send_parts(self, segment: Segment, batch: EncodeBatch, sent, listed: tuple) -> None:
        """Appends values, and takes what is sent from the residual. listed: positions, and the bits
        of their values."""

    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """By four launches, one more for values, and one more to decode without adding."""
        chunks, device, size = len(segment.chunks), batch.data.device, self.value_bits
        listed = torch.empty(chunks * CHUNK, dtype=torch.int64, device=device)
        counts = torch.empty(chunks, dtype=torch.int32, device=device)
        lasts = torch.empty(chunks, dtype=torch.int64, device=device)
        which = (batch.table, segment.chunks)
        read = (*which, batch.spans, batch.data)
        gaps = (*read, listed, counts, batch.errors)
        launch(positions.decode_parts_gaps, chunks, *gaps, VALUE_BITS=size, warps=1)
        found = (*which, listed, counts, lasts, batch.errors)
        launch(positions.sum_parts_gaps, chunks, *found, BLOCK=CODES)
        launch(positions.check_parts_order, chunks, *found, SCALAR=self.scalar_rule, warps=1)
        if size:
            values = (*read, counts, batch.errors)
            launch(sent_values.check_parts_values, chunks, *values, VALUE_BITS=size, BLOCK=CODES)
        if not batch.add:
            units = segment.units
            launch(
                sent_values.clear_parts, len(units), batch.table, units, BLOCK=self.unit_elements
            )
        launch(
            sent_values.scatter_parts,
            (chunks, blocks(CHUNK, CODES)),
            *(*gaps, batch.scale),
            VALUE_BITS=size,
            ADD=batch.add,
            BLOCK=CODES,
        )


class TopK(SparseTwin):
    """The largest elements of both signs, each with its value."""

    def _read(self, parameters: dict[str, str]) -> None:
        super()._read(parameters)
        if parameters["values"] == "2bit" or "chunk" in parameters:
            raise self._refused("leave values=2bit and chunk= out")
        self.value_bits = VALUE_BITS[parameters["values"]]
        self.scalars = self.scalar_rule = 1 if self.value_bits == 8 else 0
        self.greatest_scalar = GREATEST_STEP

    def _check(self, part: EncodedPart, count: int) -> None:
        if part.scalars[0] > GREATEST_STEP:
            raise corrupt(f"topk: the step is {part.scalars[0]:#x}")

    def _choose_in_parts(self, plan: Plan, batch: EncodeBatch, chosen, values) -> torch.Tensor:
        return chosen.view(-1, ROW)[:, 1:3] * constant((0, 1), torch.int32, chosen.device)

    def _send_parts(self, segment: Segment, batch: EncodeBatch, sent, listed: tuple) -> None:
        chunks, rows = segment.chunks, segment.plan.rows
        which = (batch.table, chunks, rows, batch.facts, sent, *listed)
        slots = (batch.out, batch.begins, batch.sizes)
        constants = {"VALUE_BITS": self.value_bits, "BLOCK": CODES}
        launch(sent_values.append_parts_values, len(chunks), *which, *slots, **constants)


class SBC(SparseTwin):
    """The largest elements of one sign, and their mean."""

    sides = 2
    scalar_rule = 2

    def may_be(self, counts, chunks, ends, scalars) -> bool:
        """As every twin; and the mean is finite, and not -0."""
        means = scalars[:, 0]
        good = ((means & 0x7FFFFFFF) < INFINITY) & (means != 0x80000000)
        return bool(good.all()) and super().may_be(counts, chunks, ends, scalars)

    def _check(self, part: EncodedPart, count: int) -> None:
        mean = part.scalars[0]
        if mean & 0x7FFFFFFF >= INFINITY or mean == 0x80000000:
            raise corrupt(f"sbc: the mean is {mean:#x}")

    def _choose_in_parts(self, plan: Plan, batch: EncodeBatch, chosen, values) -> torch.Tensor:
        device, summed = values.device, len(plan.sums)
        sums = torch.empty(2 * summed, dtype=torch.float64, device=device)
        sent = torch.empty(2 * len(plan.rows), dtype=torch.int32, device=device)
        given = (plan.sums, plan.rows, chosen, values, sums)
        launch(sent_values.sum_parts_sides, (summed, 2), *given, warps=2)
        given = (plan.parts, plan.rows, chosen, sums, batch.facts, sent, summed)
        launch(sent_values.choose_parts_side, len(plan.parts), *given, warps=1)
        return sent

    def _send_parts(self, segment: Segment, batch: EncodeBatch, sent, listed: tuple) -> None:
        plan = segment.plan
        which = (batch.table, plan.sums, plan.rows, batch.facts, sent, *listed)
        launch(sent_values.take_parts_mean, len(plan.sums), *which, BLOCK=SUMMED)
