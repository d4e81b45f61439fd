"""A codec's twin: the same bytes as the codec's, from and to tensors on a device."""

from __future__ import annotations

from abc import abstractmethod

import torch

from deltawire.errors import corrupt, invalid, wrong_dtype
from deltawire.torch.gpu import single_parts
from deltawire.torch.gpu.batch_codec import BatchCodec
from deltawire.torch.gpu.part_batches import PartBatches
from deltawire.torch.gpu.parts import Decoding, EncodedPart, Encoding, check_ends

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Twin(BatchCodec):
    """Encodes and decodes parts where they are. Made by `deltawire.torch.gpu.twin`.

    Thread rule: one call at a time.

    Attributes:
        spec: its canonical spec.
    """

    def __init__(self, spec: str, parameters: dict[str, str]):
        self.spec = spec
        self._batches: dict[torch.device, PartBatches] = {}  # of parts that are coded alone
        self._read(parameters)

    def takes(self, dtype: torch.dtype) -> bool:
        """Whether it encodes tensors of this dtype. Residuals and decoded values are float32."""
        return dtype in DTYPES

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
            taken = ", ".join(str(each) for each in DTYPES if self.takes(each))
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
            return single_parts.encode(batches, self, flat, before, left)

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
            error = single_parts.decode(batches, self, part, flat, add, scale)
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
