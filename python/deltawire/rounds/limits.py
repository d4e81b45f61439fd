"""Limits on one reply that depend on the round's other replies."""

import dataclasses
import math
from collections.abc import Hashable, Mapping

from deltawire.arguments import is_number
from deltawire.errors import invalid


@dataclasses.dataclass(frozen=True)
class Medians:
    """A limit of `factor` times the median of the round's replies.

    For an even number of replies the median is the lower of the two in the middle, so that one of
    two clients can't raise it. Zeros don't count: a client that had nothing to send is no evidence
    about the others.

    Attributes:
        factor: 1 or more, finite.

    Raises:
        DeltawireError: "InvalidArgument": another factor.
    """

    factor: float

    def __post_init__(self) -> None:
        factor = self.factor
        if not (is_number(factor) and 1 <= factor < math.inf):
            raise invalid(f"Medians({factor!r}): give a number from 1 on")

    def of(self, values: Mapping[Hashable, float]) -> float | None:
        """The limit for these replies; None if all are 0."""
        counted = sorted(value for value in values.values() if value > 0)
        return self.factor * counted[(len(counted) - 1) // 2] if counted else None


TEN_MEDIANS = Medians(10.0)  # the default of norms
# The default of sample counts. At least half of n clients count with the median or more, so that
# `a` clients hold at most 2a / (a + n/2 + 1) of the weight, whatever they claim.
TWO_MEDIANS = Medians(2.0)


def check_limit(name: str, value: object) -> None:
    """Raises "InvalidArgument" unless a limit is a number above 0, `Medians` or None."""
    positive = is_number(value) and value > 0
    if not (value is None or positive or isinstance(value, Medians)):
        raise invalid(f"{name}={value!r} must be a number above 0, rounds.Medians(factor), or None")


def sample_cap_of(sample_cap: int | Medians | None, samples: Mapping[Hashable, int]) -> int | None:
    """The most samples that count for a client in this round; None: no limit."""
    if isinstance(sample_cap, Medians):
        limit = sample_cap.of(samples)
        return None if limit is None else int(limit)
    return sample_cap


def brief(text: object, most: int = 300) -> str:
    """A text that a client influenced, cut to `most` characters before it is logged or kept."""
    whole = str(text)
    if len(whole) <= most:
        return whole
    return f"{whole[:most]}... ({len(whole):,} characters)"
