"""What `register` was told, for whichever kind of model it is."""

import dataclasses

import torch

from deltawire import _core
from deltawire.errors import make_error
from deltawire.torch.core.loss_scale import Scaler


@dataclasses.dataclass(frozen=True)
class Settings:
    """Arguments of `register`, by their names there."""

    optimizer: torch.optim.Optimizer | None
    min_elements: int
    timeout: float
    arrival_timeout: float | None
    connect_timeout: float
    interface: str | None
    port: int | str | None
    token: str | bytes | None
    link: _core.LinkShape | None
    revert: str
    threads: int | None
    scaler: Scaler | None
    nonfinite: str | None
    summary_every: int | None
    tier: str | None

    def check_no_fold(self, what: str) -> None:
        """Raises InvalidArgumentError where a failed step's gradients are to wait, but `what` is
        in the exchange, which can't keep them."""
        if self.revert == "fold":
            raise make_error(
                "InvalidArgument",
                f'revert="fold" does not go with {what}, which keeps nothing of a failed step; '
                'leave it out: with "exact", the default, such a step never happened',
            )

    def check_no_tier(self) -> None:
        """Raises InvalidArgumentError where a tier was given, but a codec is named."""
        if self.tier is not None:
            raise make_error(
                "InvalidArgument",
                f'tier={self.tier!r} is for "auto", which chooses within it; leave it out where '
                "you name a codec",
            )
