"""The loss scale, by which gradients are multiplied and which residuals have to follow."""

import contextlib
import gc
import logging
import math
from collections.abc import Callable

import torch

from deltawire.errors import invalid

logger = logging.getLogger("deltawire")

Scaler = torch.amp.GradScaler | Callable[[], float]


class LossScale:
    """A rank's loss scale, read once a step at its first bucket (on a GPU before the forward pass).
    It must be equal on all ranks. When it changes, residuals are multiplied by new / old: exact for
    powers of two, which GradScaler uses by default, unless a value leaves float32's range.

    Without a scaler the scale is assumed to be constant. A hook can't see what a loss was
    multiplied by; it only warns if it finds an enabled GradScaler.

    Attributes:
        nonfinite: "pass": a step with NaN or infinities on any rank comes out as NaN on every rank
            (unchanged in parameters that aren't compressed) and leaves no trace in residuals, which
            are reverted exactly; a GradScaler skips the step by itself. "error": it ends the
            exchange, with codecs that carry only finite values. Equal on all ranks.
        setting: "given" if there is a scaler, else "none"; equal on all ranks.
    """

    def __init__(
        self, scaler: Scaler | None, nonfinite: str | None = None, keeps_residual: bool = False
    ) -> None:
        """Raises TypeError for anything but a scaler, a function or None."""
        read = getattr(scaler, "get_scale", scaler)
        if read is not None and not callable(read):
            raise TypeError(
                "scaler must be a torch.amp.GradScaler or a function that returns the loss scale, "
                f"not {type(scaler).__name__}"
            )
        default = "error" if scaler is None else "pass"
        self.nonfinite = default if nonfinite is None else nonfinite
        self.setting = "none" if read is None else "given"
        self._read = read
        self._ahead: float | None = None
        self._unknown = read is None and keeps_residual

    def look_ahead(self) -> None:
        """Reads the coming step's scale before the forward pass of a model on a GPU. A GradScaler
        keeps it there, so that reading it waits for all queued work; the wait is shortest here,
        right after the scaler's step() has synchronized. Never raises."""
        if self._read is not None:
            with contextlib.suppress(Exception):  # `now` asks again, where all ranks hear of it
                self._ahead = float(self._read())

    def now(self) -> float:
        """The scale of the gradients of the backward pass under way: what `look_ahead` read, or
        else the current one. Raises InvalidArgumentError unless it is finite and above 0."""
        if self._read is None:
            if self._unknown:
                self._unknown = False
                _warn_of_scalers()
            return 1.0
        ahead, self._ahead = self._ahead, None
        scale = self._read() if ahead is None else ahead
        with contextlib.suppress(TypeError, ValueError):
            number = float(scale)
            if number > 0 and math.isfinite(number):
                return number
        raise invalid(f"the scaler's scale is {scale}; it must be finite and above 0")


def _warn_of_scalers() -> None:
    """Warns if the process has an enabled GradScaler: a strong hint that the loss is scaled."""
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.amp.GradScaler) and thing.is_enabled():
            logger.warning(
                "a GradScaler is enabled, but register was given no scaler=: what waits in "
                "residuals would keep the scale of its step, and a step that overflows is an "
                "error; pass scaler= if this model's loss is scaled"
            )
            return
