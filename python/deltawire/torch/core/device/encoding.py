"""Parts that their device encodes: together where their twins can, else one after another."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from deltawire.errors import DeltawireError, make_error
from deltawire.torch.core.device.memory import DeviceMemory
from deltawire.torch.gpu.parts import ENCODED, INFINITY, KINDS, Encoding, row_of

# Magnitudes that round to infinity: half a step above the largest value.
BEYOND = {"bfloat16": float.fromhex("0x1.ffp127"), "float16": 65520.0}
_SOME, _NOT_CARRIED, _OUT_OF_RANGE = 1, 2, 4  # what a device finds: `part_tables`


class Encoded(NamedTuple):
    """Some parts of a call, in the host's memory.

    Attributes:
        parts: an `ENCODED` row for each, int64.
        payload: bytes of all chunks.
        begins, sizes, sums: of the chunks: where in the payload (int64), bytes, CRC-32C (uint32).
        errors: what refuses parts, each with the number of the part.
    """

    parts: np.ndarray
    payload: np.ndarray
    begins: np.ndarray
    sizes: np.ndarray
    sums: np.ndarray
    errors: list[tuple[int, Exception]]


class PartEncoder:
    """The encoding side of a `DeviceParts`, on whose stream it is called."""

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._batches = None  # needs Triton

    def encode(self, twins: Sequence, rows: np.ndarray, factors: np.ndarray) -> list[Encoded]:
        """As `DeviceParts.encode`."""
        of_rows = [twins[number] for number in rows["codec"].tolist()]
        together = np.array([can_batch(twin) for twin in of_rows], bool)
        finish = None
        if together.any():
            numbers = np.flatnonzero(together)
            some = [of_rows[i] for i in numbers]
            finish = self._launch_batch(some, numbers, rows[together], factors[together])
        found = []
        if alone := np.flatnonzero(~together).tolist():
            found = [self._encode_each([(i, of_rows[i], rows[i], factors[i]) for i in alone])]
        return ([finish()] if finish else []) + found

    def _launch_batch(
        self, twins: Sequence, numbers: np.ndarray, rows: np.ndarray, factors: np.ndarray
    ) -> Callable[[], Encoded]:
        """What waits for the parts that are being encoded then."""
        from deltawire.torch.gpu.part_batches import EncodedBatch, PartBatches

        if self._batches is None:
            self._batches = PartBatches(self._memory.device)
        layout, on_device = self._batches.encode(twins, rows, factors)

        def finish() -> Encoded:
            batch = EncodedBatch(layout, self._memory.to_host(on_device))
            return self._encoded(batch, twins, numbers, rows, factors)

        return finish

    def _encoded(self, batch, twins, numbers, rows, factors) -> Encoded:
        largest, first, second, flags = batch.facts.T
        errors = []
        # A residual out of range is among them: its sums aren't finite.
        suspects = ((largest | first) & 0x7FFFFFFF) >= INFINITY
        for i in np.flatnonzero(suspects).tolist():
            error = self._refusal(batch.facts[i].tolist(), twins[i], rows[i], float(factors[i]))
            if error is not None:
                errors.append((int(numbers[i]), error))
        good = ~np.isin(numbers, [i for i, _ in errors])
        zeros, carries = flags & _SOME == 0, flags & _NOT_CARRIED == 0
        parts = np.empty(len(numbers), ENCODED)
        parts["part"], parts["is_encoded"] = numbers, good
        parts["is_zeros"], parts["carries"] = zeros, carries
        parts["first_chunk"], parts["chunks"] = batch.first_chunk, batch.chunks
        parts["scalar"], parts["scalar2"] = first, second
        return Encoded(_rows(parts), batch.payload, batch.begins, batch.sizes, batch.sums, errors)

    def _refusal(self, facts: list[int], twin, row: np.ndarray, factor: float) -> Exception | None:
        """Why a part is refused, if it is."""
        largest, first, _, flags = facts
        if flags & _OUT_OF_RANGE:
            return _residual_is_beyond()
        values, residual, _ = self._tensors(row)
        if residual is not None and factor != 1:
            residual = (residual.double() * factor).float()
        try:
            twin.refuse(values, residual, largest, first)
        except DeltawireError as cause:
            return cause
        return None

    def _tensors(self, row: np.ndarray) -> tuple:
        """A part's values, its residual and the place of the new one."""
        count, before = int(row["count"]), int(row["before"])
        values = self._memory.at(int(row["values"]), count, KINDS[int(row["dtype"])])
        if not before:
            return values, None, None
        return values, self._memory.at(before, count), self._memory.at(int(row["after"]), count)

    def _encode_each(self, jobs: list[tuple]) -> Encoded:
        """Parts whose twins code one at a time. Waits three times for all of them: for what refuses
        them and their numbers of chunks, for the chunks' ends and checksums, and for the
        payloads."""
        launched = [self._launch(twin, row, float(factor)) for _, twin, row, factor in jobs]
        status = torch.stack([_status(encoding, flags) for encoding, flags in launched])
        status = self._memory.to_host(status).tolist()
        parts, good, errors = [], [], []
        for (number, *_), (encoding, _), row in zip(jobs, launched, status, strict=True):
            largest, first, second, chunks, some, not_carried, out_of_range = row
            facts = {"part": number, "is_zeros": not some, "carries": not not_carried}
            error = _refusal_of(encoding, largest, first, out_of_range)
            if error is not None:
                errors.append((number, error))
            else:
                facts |= {"is_encoded": 1, "chunks": chunks}
                facts |= {"first_chunk": sum(count for _, count in good)}
                facts |= {"scalar": first & 0xFFFFFFFF, "scalar2": second & 0xFFFFFFFF}
                good.append((encoding, chunks))
            parts.append(row_of(ENCODED, **facts))
        return Encoded(_rows(np.array(parts, ENCODED)), *self._payloads(good), errors)

    def _launch(
        self, twin, row: np.ndarray, factor: float
    ) -> tuple[Encoding | Exception, torch.Tensor]:
        """What is encoded, and on the device: values that aren't zeros, values that the carrier
        can't hold, a residual that is out of range."""
        values, residual, left = self._tensors(row)
        flags = [torch.zeros((), dtype=torch.bool, device=values.device)] * 3
        if residual is not None:
            flags[0] = values.any()
            if factor != 1:
                residual = (residual.double() * factor).float()
                flags[2] = ~torch.isfinite(residual).all()
        if row["carrier"]:
            flags[1] = _not_carried(values, KINDS[int(row["carrier"])])
        seen = {}
        if row["significance"]:
            seen["significance"] = self._memory.at(int(row["significance"]), len(values))
        try:
            encoding = twin.encode(values, residual, after=left, **seen)
        except DeltawireError as cause:
            return cause, torch.stack(flags)
        return encoding, torch.stack(flags)

    def _payloads(self, good: list[tuple[Encoding, int]]) -> Iterator[np.ndarray]:
        """Payload, begins, sizes and sums."""
        if not good:
            empty = np.zeros(0, np.uint32)
            return iter((empty.astype(np.uint8), empty.astype(np.int64), empty, empty))
        lists = [each.ends[:chunks].long() for each, chunks in good]
        lists += [each.sums[:chunks].long() for each, chunks in good]
        numbers = self._memory.to_host(torch.cat(lists)).numpy()
        ends, sums = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
        sizes, totals, at = np.diff(ends, prepend=0), [], 0
        for _, chunks in good:
            if chunks:
                sizes[at] = ends[at]
            totals.append(int(ends[at + chunks - 1]) if chunks else 0)
            at += chunks
        payloads = [each.payload[:size] for (each, _), size in zip(good, totals, strict=True)]
        payload = self._memory.to_host(torch.cat(payloads)).numpy()
        begins = np.cumsum(sizes) - sizes
        return iter((payload, begins, sizes.astype(np.uint32), sums.astype(np.uint32)))


def _rows(parts: np.ndarray) -> np.ndarray:
    """As the core takes them."""
    return parts.view(np.int64).reshape(len(parts), -1)


def can_batch(twin) -> bool:
    """Whether a twin codes many parts at once."""
    return twin.slot_bytes > 0


def is_beyond(values: torch.Tensor, least: float) -> torch.Tensor:
    """Which finite values round to infinity."""
    magnitude = values.abs()
    return (magnitude >= least) & torch.isfinite(magnitude)


def _residual_is_beyond() -> Exception:
    text = "its residual is too large for the new scale; let the scale grow in smaller steps"
    return make_error("Range", text)


def _status(encoding: Encoding | Exception, flags: torch.Tensor) -> torch.Tensor:
    if isinstance(encoding, Exception):
        return torch.cat([torch.zeros(4, dtype=torch.int32, device=flags.device), flags.int()])
    return torch.cat([encoding.status, flags.int()])


def _refusal_of(
    encoding: Encoding | Exception, largest: int, first: int, out_of_range: int
) -> Exception | None:
    if isinstance(encoding, Exception):
        return encoding
    if out_of_range:
        return _residual_is_beyond()
    try:
        encoding.refuse(largest, first)
    except DeltawireError as cause:
        return cause
    return None


def _not_carried(values: torch.Tensor, carrier: str) -> torch.Tensor:
    """Whether a 16-bit dtype rounds any value to infinity, or its codec refuses one."""
    wide = values.float()
    if carrier == "float16":  # whose codec carries finite values only
        return ~(wide.abs() < BEYOND[carrier]).all()
    return is_beyond(wide, BEYOND[carrier]).any()
