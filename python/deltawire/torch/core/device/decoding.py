"""Parts that their device decodes: together where their twins can, else one after another."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from deltawire.errors import DeltawireError
from deltawire.torch.core.device.encoding import can_batch
from deltawire.torch.core.device.memory import DeviceMemory
from deltawire.torch.gpu.parts import Decoding, EncodedPart

_ERRORS = 1 << 16  # parts of a step's decodings whose errors are looked at together


class PartDecoder:
    """The decoding side of a `DeviceParts`, on whose stream it is called.

    A batch is decoded without waiting for it. What the device finds wrong with its parts gathers on
    the device until `errors` is copied to the host.
    """

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._batches = None  # needs Triton
        self._errors: torch.Tensor | None = None
        self._twins: list = []  # of the parts that errors are gathered of
        self._next: tuple | None = None  # what is in the room

    def room(self, twins: Sequence, rows: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """As `DeviceParts.room`."""
        of_rows = [twins[number] for number in rows["codec"].tolist()]
        is_batch = all(map(can_batch, of_rows)) and self._may_be(twins, rows, ends)
        if not is_batch:
            memory = np.empty(int(rows["begin"].max() + ends.max()) if len(ends) else 0, np.uint8)
            self._next = of_rows, rows, ends, memory
            return memory
        from deltawire.torch.gpu.part_batches import PartBatches

        if self._batches is None:
            self._batches = PartBatches(self._memory.device)
        self._next = of_rows, rows, ends, None
        return self._batches.room(of_rows, rows, ends)

    @staticmethod
    def _may_be(twins: Sequence, rows: np.ndarray, ends: np.ndarray) -> bool:
        for number, twin in enumerate(twins):
            is_mine = rows["codec"] == number
            mine = rows[is_mine]
            if not len(mine):
                return False
            scalars = np.stack([mine["scalar"], mine["scalar2"]], axis=1)
            its_ends = ends[np.repeat(is_mine, rows["chunks"])]
            if not twin.may_be(mine["count"], mine["chunks"], its_ends, scalars):
                return False
        return True

    def decode(self, add: bool, scale: float) -> list[tuple[int, Exception]]:
        """As `DeviceParts.decode`."""
        of_rows, rows, ends, memory = self._next
        self._next = None
        if memory is not None:
            self._twins += of_rows  # of which nothing is found later
            return self._decode_each(of_rows, rows, ends, memory, add, scale)
        self._batches.decode(self._room_for_errors(of_rows), add, scale)
        return []

    def _room_for_errors(self, twins: list) -> torch.Tensor:
        """Where the errors of the next parts gather."""
        begin, count = len(self._twins), len(twins)
        if self._errors is None or begin + count > len(self._errors):
            made = torch.zeros(
                max(_ERRORS, 2 * (begin + count)), dtype=torch.int32, device=self._memory.device
            )
            if self._errors is not None:
                made[: len(self._errors)].copy_(self._errors)
            self._errors = made
        self._twins += twins
        return self._errors[begin : begin + count]

    def errors(self) -> torch.Tensor:
        """What the device has found wrong with the parts since it was asked last."""
        if self._errors is None:
            return torch.zeros(0, dtype=torch.int32, device=self._memory.device)
        return self._errors[: len(self._twins)]

    def refused(self, errors: np.ndarray) -> tuple[int, Exception] | None:
        """The first part that `errors`, on the host, refuse, with its error. They are forgotten."""
        wrong = np.flatnonzero(errors).tolist()
        found = None
        if wrong:
            bits = torch.tensor(int(errors[wrong[0]]), dtype=torch.int64, device="cpu")
            found = wrong[0], _error_of(Decoding(bits, self._twins[wrong[0]].name))
        self.forget()
        return found

    def forget(self) -> None:
        """Of a step that was reverted or is over."""
        if self._errors is not None and self._twins:
            self._errors[: len(self._twins)].zero_()
        self._twins = []

    def _decode_each(self, twins, rows, ends, memory, add, scale) -> list[tuple[int, Exception]]:
        on_device = self._memory.to_device(torch.from_numpy(memory))
        behind = np.cumsum(rows["chunks"]).tolist()
        under_way: list[Decoding | Exception] = []
        for twin, row, last in zip(twins, rows, behind, strict=True):
            begin, scalars = int(row["begin"]), (int(row["scalar"]), int(row["scalar2"]))
            mine = ends[last - int(row["chunks"]) : last].tolist()
            size = mine[-1] if mine else 0
            part = EncodedPart(on_device[begin : begin + size], mine, (), scalars)
            slot = self._memory.at(int(row["slot"]), int(row["count"]))
            try:
                decode = twin.decode_add if add else twin.decode
                under_way.append(decode(part, slot, scale))
            except DeltawireError as cause:
                under_way.append(cause)
        decodings = [each for each in under_way if isinstance(each, Decoding)]
        found = iter(())
        if decodings:
            found = iter(self._memory.to_host(torch.cat([each.error for each in decodings])))
        errors = [
            _error_of(dataclasses.replace(each, error=next(found)))
            if isinstance(each, Decoding)
            else each
            for each in under_way
        ]
        return [(i, error) for i, error in enumerate(errors) if error is not None]


def _error_of(decoding: Decoding) -> Exception | None:
    """`decoding.error` is on the host."""
    try:
        decoding.check()
    except DeltawireError as cause:
        return cause
    return None
