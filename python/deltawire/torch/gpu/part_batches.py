"""Parts that are encoded or decoded together: a launch for all of them instead of one for each.

What stays from step to step (which program takes which block of which part, where payloads lie) is
made once and kept on the device. A batch then costs one copy to the device, a launch for each
kernel, and, to encode, one copy back.
"""

import dataclasses
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch

from deltawire.torch.gpu.kernels.chunks import checksums
from deltawire.torch.gpu.kernels.launching import BLOCK, INTERPRETED, launch
from deltawire.torch.gpu.kernels.part_tables import COLUMNS, DECODE_COLUMNS, FACTS, look, numbered
from deltawire.torch.gpu.parts import KINDS

TILES = 1 if INTERPRETED else 8  # blocks of a program that looks at values
ALIGNED = 16  # bytes
_KEPT = 256  # layouts of batches


@dataclasses.dataclass(frozen=True)
class Segment:
    """The parts of a batch that one twin codes.

    Attributes:
        twin: of their codec.
        kind: dtype of their values.
        units: (part, block of the twin's `unit_elements`) for each program, int32, on the device.
        chunks: (part, chunk of that part) for each chunk, likewise.
        first, last: which of the batch's chunks are theirs.
        room: where their payloads lie, in bytes; to encode.
        plan: what the twin keeps of them; to encode.
    """

    twin: object
    kind: str
    units: torch.Tensor
    chunks: torch.Tensor
    first: int
    last: int
    room: slice | None = None
    plan: object = None


@dataclasses.dataclass(frozen=True)
class EncodeBatch:
    """Memory of parts that are being encoded, on the device.

    Attributes:
        table: a row of COLUMNS numbers for each part, int64.
        facts: FACTS numbers for each part, int32.
        out: all payloads.
        begins: where each chunk of the segment begins in it, int64.
        sizes: bytes of each chunk of the segment, int32; for codecs whose chunks have no fixed size
            to be filled in.
        scaled: some residual has a factor.
    """

    table: torch.Tensor
    facts: torch.Tensor
    out: torch.Tensor
    begins: torch.Tensor
    sizes: torch.Tensor
    scaled: bool


@dataclasses.dataclass(frozen=True)
class DecodeBatch:
    """Memory of parts that are being decoded, on the device.

    Attributes:
        table: a row of DECODE_COLUMNS numbers for each part, int64.
        spans: where each chunk of the segment begins and ends in the payloads, int64.
        data: all payloads.
        errors: bits for each part, as Decoding has them.
    """

    table: torch.Tensor
    spans: torch.Tensor
    data: torch.Tensor
    errors: torch.Tensor
    add: bool
    scale: float


def aligned(count):
    """The next multiple of ALIGNED."""
    return -(-count // ALIGNED) * ALIGNED


class _Layout:
    """What batches of the same parts have in common. Segments are in the order of their twins'
    first parts; so are chunks, and within a segment in that of the parts."""

    def __init__(
        self, device: torch.device, twins: Sequence, kinds, counts: np.ndarray, chunks: np.ndarray
    ) -> None:
        self.counts = counts
        self.segments: list[Segment] = []
        self.chunks = chunks  # of each part; and the first one's number
        self.first_chunk = np.zeros(len(twins), np.int64)
        by_twin: dict[tuple, list[int]] = {}
        for i, (twin, kind) in enumerate(zip(twins, kinds, strict=True)):
            by_twin.setdefault((id(twin), kind), []).append(i)
        self.chunk_count = 0
        self.order: list[np.ndarray] = []  # (part, chunk) of all chunks
        for (_, kind), members in by_twin.items():
            parts = np.array(members, np.int64)
            twin, mine = twins[members[0]], chunks[parts]
            self.first_chunk[parts] = self.chunk_count + np.cumsum(mine) - mine
            first, self.chunk_count = self.chunk_count, self.chunk_count + int(mine.sum())
            units = numbered(parts, -(-counts[parts] // twin.unit_elements))
            self.order.append(numbered(parts, mine))
            on_device = [torch.from_numpy(each).to(device) for each in (units, self.order[-1])]
            self.segments.append(Segment(twin, kind, *on_device, first, self.chunk_count))


class _EncodeLayout(_Layout):
    """Payloads lie in slots, part after part, without gaps within a part.

    Attributes:
        begins: where each chunk begins in the memory for payloads.
        bytes: of that memory.
    """

    def __init__(self, device: torch.device, twins: Sequence, kinds, counts: np.ndarray) -> None:
        chunks = np.zeros(len(twins), np.int64)
        for twin in set(twins):
            mine = np.array([each is twin for each in twins])
            chunks[mine] = twin.chunks_of(counts[mine])
        super().__init__(device, twins, kinds, counts, chunks)
        self.kinds = [
            (kind, torch.from_numpy(self._units_of(kinds, kind)).to(device))
            for kind in dict.fromkeys(kinds)
        ]
        self.begins = np.empty(self.chunk_count, np.int64)
        self.sizes = np.zeros(self.chunk_count, np.int32)
        self.out = np.zeros(len(twins), np.int64)
        self.bytes = 0
        self.segments = [
            self._placed(device, *each) for each in zip(self.segments, self.order, strict=True)
        ]

    def _placed(self, device: torch.device, segment: Segment, order: np.ndarray) -> Segment:
        """Gives the chunks of a segment their places."""
        twin, here = segment.twin, slice(segment.first, segment.last)
        part, chunk = order[:, 0].astype(np.int64), order[:, 1].astype(np.int64)
        members = np.unique(part)
        sizes = twin.chunk_bytes(self.counts[part], chunk)
        slots = aligned(np.add.reduceat(sizes, self.first_chunk[members] - segment.first))
        ends = self.bytes + np.cumsum(slots)
        self.out[members] = ends - slots
        self.begins[here] = self.out[part] + chunk * twin.slot_bytes
        if twin.fixed:
            self.sizes[here] = sizes
        room, self.bytes = slice(self.bytes, int(ends[-1])), int(ends[-1])
        plan = twin.plan(members, self.counts[members], device)
        return dataclasses.replace(segment, room=room, plan=plan)

    def _units_of(self, kinds: Sequence[str], kind: str) -> np.ndarray:
        parts = np.array([i for i, each in enumerate(kinds) if each == kind], np.int64)
        return numbered(parts, -(-self.counts[parts] // (TILES * BLOCK)))


class EncodedBatch:
    """Parts that a device has encoded, in the host's memory.

    Args:
        layout: of the parts.
        on_host: a copy of what `PartBatches.encode` gives.

    Attributes:
        facts: FACTS numbers for each part, uint32.
        chunks, first_chunk: for each part; a chunk that the values did not need has no bytes.
        begins, sizes, sums: of chunks: where in `payload`, bytes, CRC-32C.
        payload: of all parts, with gaps.
    """

    def __init__(self, layout: _EncodeLayout, on_host: torch.Tensor) -> None:
        facts, sizes, sums, self.payload = _cut(on_host.numpy(), *_coded(layout))
        self.facts = facts.view(np.uint32).reshape(-1, FACTS)
        self.sizes, self.sums = (
            each.view(np.uint32)[: layout.chunk_count] for each in (sizes, sums)
        )
        self.first_chunk = layout.first_chunk
        made = np.concatenate(([0], np.cumsum(self.sizes > 0)))
        self.chunks = made[layout.first_chunk + layout.chunks] - made[layout.first_chunk]
        self.begins = layout.begins


def _given(layout: _EncodeLayout) -> tuple[int, int]:
    """Bytes of the table, and of where chunks begin."""
    return 8 * COLUMNS * len(layout.counts), aligned(8 * layout.chunk_count)


def _coded(layout: _EncodeLayout) -> tuple[int, ...]:
    """Bytes of facts, of chunks' sizes and sums, and of payloads."""
    chunks = aligned(4 * layout.chunk_count)
    return 4 * FACTS * len(layout.counts), chunks, chunks, layout.bytes


def _cut(memory, *sizes: int) -> list:
    ends = np.cumsum(sizes)
    return [memory[end - size : end] for end, size in zip(ends, sizes, strict=True)]


class PartBatches:
    """Encodes and decodes batches on the current stream of a device.

    Thread rule: one call at a time.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pinned = device.type == "cuda"
        self._layouts: OrderedDict[tuple, _Layout] = OrderedDict()
        self._room: tuple | None = None  # of what is decoded next

    def host(self, size: int) -> torch.Tensor:
        """Memory of the host that copies need not wait for."""
        return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=self._pinned)

    def encode(
        self, twins: Sequence, rows: np.ndarray, factors: np.ndarray
    ) -> tuple[_EncodeLayout, torch.Tensor]:
        """Launches the encoding of parts that aren't empty.

        Args:
            rows: `TO_ENCODE` of each part.
            factors: of the residuals, float64.

        Returns:
            Their layout; and facts, sizes, sums and payloads, on the device.
        """
        kinds = [KINDS[each] for each in rows["dtype"].tolist()]
        layout = self._layout(_EncodeLayout, twins, kinds, rows["count"])
        scaled = bool((factors != 1).any())
        regions = _given(layout) + _coded(layout)
        host = self.host(sum(regions[:4]))
        sent = host.numpy()
        table, begins, facts, sizes = _cut(sent, *regions[:4])
        table = table.view(np.int64).reshape(-1, COLUMNS)
        for column, member in enumerate(("values", "before", "after", "count")):
            table[:, column] = rows[member]
        table[:, 4] = factors.view(np.int64)
        table[:, 5] = layout.out
        table[:, 6] = rows["carrier"]
        facts[:] = 0
        begins.view(np.int64)[: layout.chunk_count] = layout.begins
        sizes.view(np.int32)[: layout.chunk_count] = layout.sizes
        memory = torch.empty(sum(regions), dtype=torch.uint8, device=self._device)
        memory[: len(sent)].copy_(host, non_blocking=True)
        self._launch(layout, _cut(memory, *regions), scaled)
        return layout, memory[sum(_given(layout)) :]

    def encode_on_device(self, *given) -> list[torch.Tensor]:
        """As `encode`: the parts' facts, their chunks' sizes and sums, all int32, and payloads."""
        layout, memory = self.encode(*given)
        facts, sizes, sums, payload = _cut(memory, *_coded(layout))
        facts, sizes, sums = (each.view(torch.int32) for each in (facts, sizes, sums))
        return [facts, sizes[: layout.chunk_count], sums[: layout.chunk_count], payload]

    def _launch(self, layout: _EncodeLayout, memory: list[torch.Tensor], scaled: bool) -> None:
        table, begins, facts, sizes, sums, out = memory
        table, facts = table.view(torch.int64), facts.view(torch.int32)
        begins = begins.view(torch.int64)[: layout.chunk_count]
        sizes = sizes.view(torch.int32)[: layout.chunk_count]
        for kind, units in layout.kinds:
            options = {"KIND": kind, "SCALED": scaled, "TILES": TILES, "BLOCK": BLOCK}
            launch(look, len(units), table, units, facts, **options)
        for segment in layout.segments:
            chunks = slice(segment.first, segment.last)
            batch = EncodeBatch(table, facts, out, begins[chunks], sizes[chunks], scaled)
            segment.twin.encode_parts(segment, batch)
        checksums(out, begins, sizes, sums.view(torch.int32))

    def room(
        self,
        twins: Sequence,
        rows: np.ndarray,
        ends: np.ndarray,
        payload_on_device: torch.Tensor | None = None,
    ) -> np.ndarray:
        """The host's memory for the payloads of parts that are decoded next, and aren't empty.

        Args:
            rows: `TO_DECODE` of each part; payloads begin at multiples of ALIGNED.
            ends: of all parts' chunks in their payloads.
            payload_on_device: all payloads, if they are there; then the memory has no bytes.
        """
        kinds = ["float32"] * len(twins)
        layout = self._layout(_Layout, twins, kinds, rows["count"], rows["chunks"])
        size = int(rows["begin"][-1] + ends[-1]) if payload_on_device is None else 0
        regions = 8 * DECODE_COLUMNS * len(rows), 16 * layout.chunk_count, aligned(size)
        host = self.host(sum(regions))
        table, spans, payload = _cut(host.numpy(), *regions)
        table = table.view(np.int64).reshape(-1, DECODE_COLUMNS)
        for column, member in enumerate(("slot", "count", "begin")):
            table[:, column] = rows[member]
        table[:, 3] = rows["scalar"]
        begins = np.concatenate(([0], ends[:-1]))
        given = np.cumsum(layout.chunks) - layout.chunks  # each part's first among all ends
        begins[given] = 0
        spans = spans.view(np.int64).reshape(-1, 2)
        for segment, order in zip(layout.segments, layout.order, strict=True):
            part, chunk = order[:, 0], order[:, 1]
            at = given[part] + chunk
            here = slice(segment.first, segment.last)
            spans[here, 0] = rows["begin"][part] + begins[at]
            spans[here, 1] = rows["begin"][part] + ends[at]
        self._room = layout, regions, host, payload_on_device
        return payload

    def decode(self, errors: torch.Tensor, add: bool, scale: float) -> None:
        """Launches the decoding of what was put into the room.

        Args:
            errors: zeros, int32, one for each part.
        """
        layout, regions, host, payload_on_device = self._room
        self._room = None
        memory = host.to(self._device, non_blocking=True)
        table, spans, data = _cut(memory, *regions)
        data = data if payload_on_device is None else payload_on_device
        table, spans = table.view(torch.int64), spans.view(torch.int64).view(-1, 2)
        for segment in layout.segments:
            here = spans[segment.first : segment.last]
            segment.twin.decode_parts(
                segment, DecodeBatch(table, here, data, errors, add, float(np.float32(scale)))
            )

    def _layout(self, made: type, twins: Sequence, kinds: list[str], *numbers: np.ndarray):
        """A layout of so many elements, and of so many chunks where the twins don't say it."""
        key = (made, tuple(map(id, twins)), tuple(kinds), *(each.tobytes() for each in numbers))
        layout = self._layouts.get(key)
        if layout is None:
            kept = [each.copy() for each in numbers]
            layout = self._layouts[key] = made(self._device, twins, kinds, *kept)
            if len(self._layouts) > _KEPT:
                self._layouts.popitem(last=False)
        return layout
