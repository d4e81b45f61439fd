"""A codec's twin: the same bytes as the codec's, from and to tensors on a device."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod

import numpy as np
import torch

from deltawire.errors import corrupt, invalid, wrong_dtype
from deltawire.torch.gpu.kernels.chunks import join
from deltawire.torch.gpu.kernels.launching import BLOCK
from deltawire.torch.gpu.kernels.part_tables import LARGEST, numbers_of
from deltawire.torch.gpu.part_batches import (
    ALIGNED,
    DecodeBatch,
    EncodeBatch,
    PartBatches,
    Segment,
)
from deltawire.torch.gpu.parts import (
    INFINITY,
    KINDS,
    TO_DECODE,
    TO_ENCODE,
    Decoding,
    EncodedPart,
    Encoding,
    check_ends,
    name_not_finite,
    row_of,
)

# The core's number of each dtype.
_NUMBERS = {getattr(torch, kind): number for number, kind in KINDS.items()}


class Twin(ABC):
    """Encodes and decodes parts where they are: those of a batch together, or one alone, which is a
    batch of one. Made by `deltawire.torch.gpu.twin`.

    Thread rule: one call at a time.

    Attributes:
        name: the codec's name.
        spec: its canonical spec.
    """

    scalars = 0  # how many numbers the codec has for a part
    chunk_elements = 0  # 0: chunks depend on the values
    chunk_positions = 0  # that a chunk sends at most, where their number depends on the values
    finite_only = True
    greatest_scalar = 0xFFFFFFFF  # of a part that is coded with others
    slot_bytes = 0  # that a chunk takes at most; 0: it codes one part at a time
    in_place = True  # the new residual may replace the old one while it is being made
    fixed = False  # chunks are as long as their number of elements says
    unit_elements = BLOCK  # that a program codes of parts that are coded together

    def __init__(self, spec: str, name: str, parameters: dict[str, str]):
        self.spec, self.name = spec, name
        self._batches: dict[torch.device, PartBatches] = {}  # of parts that are coded alone
        self._read(parameters)

    def takes(self, dtype: torch.dtype) -> bool:
        """Whether it encodes tensors of this dtype. Residuals and decoded values are float32."""
        return dtype in _NUMBERS

    def encode(
        self,
        values: torch.Tensor,
        residual: torch.Tensor | None = None,
        after: torch.Tensor | None = None,
    ) -> Encoding:
        """Encodes a contiguous tensor on the current stream of its device.

        Args:
            values: float32, bfloat16 or float16.
            residual: what earlier calls left, float32, to be added; None: no error feedback.
            after: where the new residual goes; None: into `residual`, which a refused tensor leaves
                as it was. Other memory spares a sparse codec a pass, and is unspecified after a
                refusal.

        Raises DTypeError for a dtype that it doesn't take, InvalidArgumentError for a tensor that
        is not contiguous, and for residuals of another size or device. What depends on the values
        is raised by Encoding.collect.
        """
        if not self.takes(values.dtype):
            taken = ", ".join(str(each) for each in _NUMBERS if self.takes(each))
            raise wrong_dtype(f"{self.name}: {values.dtype} on a device; give {taken}")
        check_memory(self.name, "the tensor", values, values)
        for each in (residual, after):
            if each is not None:
                check_memory(self.name, "the residual", each, values)
                check_float32(self.name, "the residual", each)
        flat = values.detach().view(-1)
        if not flat.numel():
            return nothing(flat.device)
        before = left = None
        if residual is not None:
            before = residual.detach().view(-1)
            left = before if after is None else after.detach().view(-1)
        batches = self._batches_on(flat.device)
        with torch.cuda.device_of(flat):  # kernels run on the current device
            return self._encode_alone(batches, flat, before, left)

    def decode(self, part: EncodedPart, out: torch.Tensor, scale: float = 1.0) -> Decoding:
        """Writes scale * value into `out`, a contiguous float32 tensor.

        Raises DeltawireError ("Corrupt", "Truncated") for chunks whose number or ends are wrong.
        What is wrong within them is raised by Decoding.check.
        """
        return self._into(part, out, scale, add=False)

    def decode_add(self, part: EncodedPart, out: torch.Tensor, scale: float = 1.0) -> Decoding:
        """As `decode`, but adds to what is in `out`; a sparse codec adds only what was sent."""
        return self._into(part, out, scale, add=True)

    def _into(self, part: EncodedPart, out: torch.Tensor, scale: float, add: bool) -> Decoding:
        check_memory(self.name, "the slot", out, out)
        check_float32(self.name, "the slot", out)
        flat = out.detach().view(-1)
        self.check(part, flat.numel())
        if not flat.numel():
            return Decoding(torch.zeros(1, dtype=torch.int32, device=out.device), self.name)
        batches = self._batches_on(flat.device)
        with torch.cuda.device_of(flat):
            return self._decode_alone(batches, part, flat, add, scale)

    def _encode_alone(
        self,
        batches: PartBatches,
        values: torch.Tensor,
        residual: torch.Tensor | None,
        after: torch.Tensor | None,
    ) -> Encoding:
        """As `encode`, of at least one value; the new residual goes to `after`."""
        left = after
        if not self.in_place and residual is not None and after.data_ptr() == residual.data_ptr():
            left = torch.empty_like(residual)
        before, behind = (0 if each is None else each.data_ptr() for each in (residual, left))
        row = row_of(
            TO_ENCODE,
            values=values.data_ptr(),
            count=len(values),
            dtype=_NUMBERS[values.dtype],
            before=before,
            after=behind,
        )
        rows = np.array([row], TO_ENCODE)
        facts, sizes, sums, payload = batches.encode_on_device([self], rows, np.ones(1))
        if left is not after:
            if self.finite_only:
                left = torch.where(facts[LARGEST.value] < INFINITY, left, residual)
            after.copy_(left)
        if self.fixed:
            ends = torch.cumsum(sizes, 0)
        else:
            payload, ends = join(payload, self.slot_bytes, sizes)
        chunks = (sizes > 0).sum(dtype=torch.int32)  # values may not have needed all
        status = torch.cat([facts[:3], chunks.view(1)])
        refuse = functools.partial(self.refuse, values, residual)
        return Encoding(payload, ends, sums, status, refuse)

    def _decode_alone(
        self, batches: PartBatches, part: EncodedPart, out: torch.Tensor, add: bool, scale: float
    ) -> Decoding:
        """Decodes a part that `check` has found good into at least one value."""
        error = torch.zeros(1, dtype=torch.int32, device=out.device)
        payload = part.payload.to(out.device)
        if payload.data_ptr() % ALIGNED:
            payload = payload.clone()
        scalar, scalar2 = part.scalars
        place = {"slot": out.data_ptr(), "count": out.numel(), "chunks": len(part.ends)}
        row = row_of(TO_DECODE, **place, scalar=scalar, scalar2=scalar2)
        ends = np.array(part.ends, np.int64)
        batches.room([self], np.array([row], TO_DECODE), ends, payload)
        batches.decode(error, add, scale)
        return Decoding(error, self.name)

    def _batches_on(self, device: torch.device) -> PartBatches:
        return self._batches.setdefault(device, PartBatches(device))

    def check(self, part: EncodedPart, count: int) -> None:
        """Raises what `decode` raises for a part of `count` elements."""
        chunks = len(part.ends)
        if not self.may_have(chunks, count):
            raise corrupt(f"{self.name}: {chunks} chunks for {count} elements")
        check_ends(part)
        if any(part.scalars[self.scalars if count else 0 :]):
            text = f"the part's scalars are {part.scalars}, but {self.name} has {self.scalars}"
            raise corrupt(text)
        if count:
            self._check(part, count)

    def refuse(
        self, values: torch.Tensor, residual: torch.Tensor | None, most: int, first: int
    ) -> None:
        """Raises DeltawireError ("NotFinite", "Range") for values that the codec refuses.

        Args:
            most: bits of the largest magnitude.
            first: the first scalar.
        """
        if self.finite_only and most >= INFINITY:
            name_not_finite(self.name, values, residual)

    def chunks_of(self, counts: np.ndarray) -> np.ndarray:
        """How many chunks it makes of parts of so many elements, at most."""
        return -(-counts // self.chunk_elements)

    def chunk_bytes(self, counts: np.ndarray, chunks: np.ndarray) -> np.ndarray:
        """How many bytes these chunks of parts of so many elements have: exactly if the twin is
        `fixed`, else at most; of a chunk that is not the last `slot_bytes`."""
        return np.full(len(counts), self.slot_bytes)

    def plan(self, parts: np.ndarray, counts: np.ndarray, device: torch.device) -> object:
        """What it keeps of a batch to be encoded, as long as its parts have these sizes."""
        return None

    @abstractmethod
    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """Encodes many parts at once. The facts say how large their values are; their scalars are
        filled in."""

    @abstractmethod
    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """Decodes many parts at once: parts that `may_be` has found good."""

    def may_be(self, counts: np.ndarray, chunks: np.ndarray, ends: np.ndarray, scalars) -> bool:
        """Whether an encoder may have written parts with so many elements, chunks, ends of all
        these chunks, and scalars, as far as these say; if not, `check` says what is wrong."""
        if not self.may_have(chunks, counts) or scalars[:, self.scalars :].any():
            return False
        if self.scalars and scalars[:, 0].max() > self.greatest_scalar:
            return False
        sizes = np.diff(ends, prepend=0)
        firsts = np.cumsum(chunks) - chunks
        sizes[firsts] = ends[firsts]
        if self.fixed:
            wanted = self.chunk_bytes(np.repeat(counts, chunks), numbers_of(chunks))
            return bool((sizes == wanted).all())
        return bool((sizes > 0).all())

    def may_have(self, chunks: np.ndarray | int, counts: np.ndarray | int) -> bool:
        """Whether parts of so many elements may have so many chunks."""
        most = -(-counts // (self.chunk_elements or self.chunk_positions))
        fewest = most if self.chunk_elements else np.minimum(most, 1)
        return bool(np.all((fewest <= chunks) & (chunks <= most)))

    @abstractmethod
    def _read(self, parameters: dict[str, str]) -> None:
        """Takes the parameters of a canonical spec."""

    @abstractmethod
    def _check(self, part: EncodedPart, count: int) -> None:
        """Refuses scalars, and chunk ends that don't depend on the values."""


def nothing(device: torch.device) -> Encoding:
    """A part without elements."""

    def zeros(count: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(count, dtype=dtype, device=device)

    return Encoding(
        zeros(0, torch.uint8),
        zeros(0, torch.int64),
        zeros(0, torch.int32),
        zeros(4, torch.int32),
        lambda most, first: None,
    )


def check_memory(codec: str, what: str, tensor: torch.Tensor, like: torch.Tensor) -> None:
    """Raises InvalidArgumentError unless a tensor is contiguous, of `like`'s size and device."""
    if not tensor.is_contiguous():
        raise invalid(f"{codec}: {what} is not contiguous in memory")
    if tensor.numel() != like.numel() or tensor.device != like.device:
        raise invalid(
            f"{codec}: {what} has {tensor.numel()} elements on {tensor.device}, but the tensor "
            f"{like.numel()} on {like.device}"
        )


def check_float32(codec: str, what: str, tensor: torch.Tensor) -> None:
    """Raises DTypeError unless a tensor has float32 values."""
    if tensor.dtype != torch.float32:
        raise wrong_dtype(f"{codec}: {what} must be float32, not {tensor.dtype}")
