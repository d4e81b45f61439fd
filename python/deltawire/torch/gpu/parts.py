"""Encoded parts: on their way through a device, and as the wire has them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from deltawire import _core
from deltawire.errors import corrupt, invalid, make_error

KINDS = {1: "float32", 2: "bfloat16", 3: "float16"}  # as the core numbers dtypes
INFINITY = 0x7F800000  # bits of the magnitude from which on a value is not finite


def _record(rows: str) -> np.dtype:
    return np.dtype([(member, np.int64) for member in _core.part_rows[rows]])


# A part to encode: number of its codec, addresses of values, residual or 0, the new one's place and
# significances or 0 (for twins of a caller's own), dtypes (also of its carrier, or 0).
TO_ENCODE = _record("to_encode")
# How it was encoded: its number in the call, whether it was and what is known of its values, the
# first of its chunks and their number, both scalars.
ENCODED = _record("encoded")
# A part to decode: number of its codec, its slot's address, both scalars, where its payload begins.
TO_DECODE = _record("to_decode")


def row_of(kind: np.dtype, **members: int) -> tuple[int, ...]:
    """One record, to make arrays of; members that are not given are 0."""
    return tuple(members.get(name, 0) for name in kind.names)


def records(kind: np.dtype, rows: np.ndarray) -> np.ndarray:
    """The core's rows, with names for their members."""
    return rows.view(kind)[:, 0]


@dataclass(frozen=True)
class EncodedPart:
    """What a frame carries of a part.

    Attributes:
        payload: the chunks' bytes, one directly after another, on any device.
        ends: where each chunk ends in it.
        sums: CRC-32C of each chunk, from seed 0; empty if they were not computed.
        scalars: the codec's numbers for the part, unused ones 0.
    """

    payload: torch.Tensor
    ends: Sequence[int]
    sums: Sequence[int] = ()
    scalars: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Encoding:
    """A part that a device is encoding or has encoded. Nothing has waited for the device yet.

    Attributes:
        payload, ends, sums: buffers on the device; what lies behind the last chunk has no meaning.
        status: int32 numbers on the device: bits of the largest magnitude, or of what refuses the
            part; both scalars; and how many chunks there are.
    """

    payload: torch.Tensor
    ends: torch.Tensor
    sums: torch.Tensor
    status: torch.Tensor
    refuse: Callable[[int, int], None]  # raises for a status that refuses

    def collect(self) -> EncodedPart:
        """Waits for the device and gives the part in the host's memory.

        Raises DeltawireError ("NotFinite", "Range") for what the codec refuses.
        """
        most, first, second, chunks = self.status.tolist()
        self.refuse(most, first)
        ends = self.ends[:chunks].tolist()
        return EncodedPart(
            self.payload[: ends[-1] if ends else 0].cpu(),
            ends,
            [each & 0xFFFFFFFF for each in self.sums[:chunks].tolist()],
            (first & 0xFFFFFFFF, second & 0xFFFFFFFF),
        )


@dataclass(frozen=True)
class Decoding:
    """A part that a device is decoding or has decoded.

    Attributes:
        error: on the device: 0, or bits that say what is wrong with the part: 1 corrupt,
            2 truncated, 4 positions that have no twin.
        codec: its name.
    """

    error: torch.Tensor
    codec: str

    def check(self) -> None:
        """Waits for the device. Raises DeltawireError ("Corrupt", "Truncated") for a part that no
        encoder writes; the values are then unspecified.
        """
        bits = int(self.error)
        if bits & 4:
            text = f"{self.codec}: interpolative positions (positions=auto) have no twin on a GPU"
            raise invalid(text)
        if bits & 1:
            raise corrupt(f"{self.codec}: a chunk that no encoder writes")
        if bits & 2:
            raise make_error("Truncated", f"{self.codec}: a chunk ends before its elements")


def check_ends(part: EncodedPart) -> None:
    """Raises DeltawireError unless the chunks' ends grow strictly up to the payload's end."""
    before = 0
    for i, end in enumerate(part.ends):
        if end <= before:
            raise corrupt(f"chunk {i} ends at byte {end}, not after the chunk before it")
        before = end
    size = part.payload.numel()
    if before > size:
        text = f"payload has {size} bytes, its chunks {before}"
        raise make_error("Truncated", text)
    if before < size:
        raise corrupt(f"{size - before} bytes follow the last chunk")


def name_not_finite(codec: str, values: torch.Tensor, residual: torch.Tensor | None) -> None:
    """Raises DeltawireError ("NotFinite"), which names the first value that isn't finite."""
    x = values.to(torch.float32)
    sums = x if residual is None else x + residual
    at = int((~torch.isfinite(sums)).nonzero()[0])
    text = f"element {at}"
    if residual is None or not torch.isfinite(x[at]):
        text += f" of the input is {_number(x[at])}"
    else:
        text += f" is {_number(sums[at])} once the residual {_number(residual[at])} is added "
        text += f"to the input {_number(x[at])}"
    raise make_error("NotFinite", f"{text}: {codec} carries finite values only")


def _number(value: torch.Tensor) -> str:
    return f"{float(value):.9g}"
