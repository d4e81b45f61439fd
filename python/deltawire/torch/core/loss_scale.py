"""The scale of a loss: how many times what they mean gradients are, which residuals follow."""

import contextlib
import gc
import logging
import math
from collections.abc import Callable

import torch

from deltawire import _core
from deltawire.errors import make_error

logger = logging.getLogger("deltawire")

Scaler = torch.amp.GradScaler | Callable[[], float]


class LossScale:
    """What a rank knows of its loss scale, asked for once a step, at its first bucket (of a model
    on a GPU: before its forward pass). It must be equal on all ranks. What waits in residuals is
    multiplied by new / old: powers of two, which GradScaler uses by default, lose nothing but what
    leaves float32's range.

    Without a scaler the scale is taken to be constant, which does no harm where it is. A hook can't
    see what a loss was multiplied with; it warns of a GradScaler that it finds enabled, no more.

    Attributes:
        nonfinite: "pass": a step with NaN or infinities on a rank comes out as NaN (in parameters
            that aren't compressed as it is) on every rank and leaves no trace in residuals, which
            are reverted exactly; a GradScaler skips it by itself. "error": it
            ends the exchange, with codecs that carry finite values only. Equal on all ranks.
        setting: what must be equal of the scaler: "given" or "none".
    """

    def __init__(self, scaler: Scaler | None, spec: str, nonfinite: str | None = None) -> None:
        """Raises TypeError for anything but a scaler, a function or None."""
        read = getattr(scaler, "get_scale", scaler)
        if read is not None and not callable(read):
            raise TypeError(
                "scaler must be a torch.amp.GradScaler or a function that returns the loss scale, "
                f"not {type(scaler).__name__}"
            )
        self.nonfinite = nonfinite or ("error" if scaler is None else "pass")
        self.setting = "none" if read is None else "given"
        self._read = read
        self._ahead: float | None = None
        self._unknown = read is None and _core.keeps_residual(spec)

    def look_ahead(self) -> None:
        """Before a forward pass of a model on a GPU: asks for the scale of the coming step. A
        GradScaler's lies on the GPU, and whoever asks waits for all that the GPU has been given:
        least of all here, where the scaler's step() has just waited for it. Never raises."""
        if self._read is not None:
            with contextlib.suppress(Exception):  # `now` asks again, where all ranks hear of it
                self._ahead = float(self._read())

    def now(self) -> float:
        """The scale of the gradients of the backward pass under way, as `look_ahead` found it, or
        as it is; raises InvalidArgumentError for anything but a number above 0."""
        if self._read is None:
            if self._unknown:
                self._unknown = False
                _warn_of_scalers()
            return 1.0
        ahead, self._ahead = self._ahead, None
        scale = float(self._read()) if ahead is None else ahead
        if not (scale > 0 and math.isfinite(scale)):
            raise make_error(
                "InvalidArgument", f"the scaler's scale is {scale}; it must be finite and above 0"
            )
        return scale


def _warn_of_scalers() -> None:
    """A hook can't see that a loss was scaled, but an enabled GradScaler is a strong hint."""
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.amp.GradScaler) and thing.is_enabled():
            logger.warning(
                "a GradScaler is enabled, but register was given no scaler=: what waits in "
                "residuals would keep the scale of its step, and a step that overflows is an "
                "error; pass scaler= if this model's loss is scaled"
            )
            return
