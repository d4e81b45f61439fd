"""Who codes what is exchanged: its device, with codecs' twins, or the CPU."""

import dataclasses
import logging
from collections.abc import Callable, Iterable

import torch

from deltawire import _core
from deltawire.errors import DeltawireError, invalid
from deltawire.torch.core.device.parts import DeviceParts

logger = logging.getLogger("deltawire")

# What `twins=` takes: whether, or what makes a twin of a codec's canonical spec.
Twins = bool | Callable[[str], object]

_OF_SMALL_TENSORS = ("fp32", "bf16", "fp16")  # to which small tensors are left, whatever the spec


@dataclasses.dataclass(frozen=True)
class Choice:
    """Where buckets are coded.

    Attributes:
        parts: codes on the device; None: the CPU does.
        coded_on: the device's name.
    """

    parts: DeviceParts | None
    coded_on: str = "cpu"

    @property
    def coder(self) -> str:
        """The part of the choice that must be equal on all ranks."""
        return "the CPU" if self.parts is None else "twins (twins=False: the CPU)"

    def log(self, rank: int) -> None:
        """Says it once, on rank 0."""
        if rank == 0 and self.parts is not None:
            logger.info("what is exchanged is encoded and decoded on %s", self.coded_on)


@dataclasses.dataclass(frozen=True)
class Exchange:
    """What the choice depends on, besides the wish: spec, devices and dtypes of the tensors
    (gradients, or changes of weights), seconds for a call of the device, rank, `revert`, and
    whether any tensor is sparse."""

    spec: _core.Spec
    devices: Iterable[torch.device]
    dtypes: Iterable[torch.dtype]
    timeout: float
    rank: int | None
    revert: str = "exact"
    has_sparse: bool = False


BY_CPU = Choice(None)


def check_not_for_auto(twins: Twins) -> None:
    """Raises InvalidArgumentError if twins are asked for: decisions.md says what "auto" lacks."""
    if twins:
        raise invalid(
            'twins= is not for "auto", which chooses by figures that only coding on the CPU gives; '
            "leave it out, or name a codec"
        )


def choose(twins: Twins, exchange: Exchange) -> Choice:
    """Twins on the tensors' device if the caller wants them, else the CPU.

    Raises InvalidArgumentError, which says why, where twins can't code these tensors.
    """
    if twins is False:
        return BY_CPU
    devices = set(exchange.devices)
    device = next(iter(devices))
    make_twin, reason = _maker(twins, device)
    reason = reason or _why_not(exchange, len(devices), make_twin)
    if reason:
        raise invalid(f"twins={twins} can't be granted: {reason}")
    return Choice(DeviceParts(device, make_twin, exchange.timeout, exchange.rank), str(device))


def _maker(twins: Twins, device: torch.device) -> tuple[Callable[[str], object] | None, str]:
    if callable(twins):
        return twins, ""
    if device.type != "cuda":
        return None, f"twins are for CUDA devices, and the tensors are on {device}"
    from deltawire.torch.gpu.twins import missing_triton, twin_of_canonical

    missing = missing_triton()
    return twin_of_canonical, missing and f"twins need Triton: {missing}"


def _why_not(exchange: Exchange, number_of_devices: int, make_twin: Callable[[str], object]) -> str:
    """Why the device can't code; empty if it can."""
    if not exchange.spec.takes_backend:
        pattern = exchange.spec.pattern
        return f"the pattern {pattern} has no way for twins; direct, ring, gather have one"
    if exchange.revert != "exact":
        return f"revert={exchange.revert!r} is for the CPU"
    if exchange.has_sparse:
        return "sparse gradients have no twin"
    if number_of_devices > 1:
        return "the tensors are on several devices"
    for rule in exchange.spec.rules:
        if rule.changes_input:
            return f"of what follows 'with', a device has decay= alone: {rule.codec}"
    for codec in (*(rule.codec_alone for rule in exchange.spec.rules), *_OF_SMALL_TENSORS):
        try:
            made = make_twin(codec)
        except DeltawireError as cause:
            return str(cause)
        refused = sorted(str(dtype) for dtype in exchange.dtypes if not made.takes(dtype))
        if refused:
            return f"the twin of {codec} takes no tensors of {refused[0]}"
    return ""
