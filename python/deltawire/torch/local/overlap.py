"""How many local steps an exchange overlaps with, and what its result keeps of them."""

import dataclasses

from deltawire import arguments
from deltawire.errors import invalid


@dataclasses.dataclass(frozen=True)
class Overlap:
    """When the result of an exchange is applied, and what is kept of the steps taken meanwhile.

    Args:
        delay: 0: an exchange is finished at once; 1: when the next one begins.
        overlap: with delay=0: after so many local steps, at the latest when the next one begins.
        mixing: share of a rank's own weights that is kept in the result, 0 <= mixing < 1. None:
            what it has moved since the exchange began is kept on top.

    Raises:
        InvalidArgumentError: a value that can't be, or two that exclude each other.
    """

    delay: int = 0
    overlap: int = 0
    mixing: float | None = None

    def __post_init__(self) -> None:
        delay, mixing = self.delay, self.mixing
        if isinstance(delay, bool) or delay not in (0, 1):
            raise invalid(
                f"delay={delay!r} must be 0 (ranks wait for each exchange) or 1 (it goes on during "
                "the next round)"
            )
        arguments.check_count("overlap", self.overlap)
        if delay and self.overlap:
            raise invalid(
                f"delay=1 and overlap={self.overlap} both say how long an exchange may take; give "
                "one of them"
            )
        if mixing is None:
            return
        if not arguments.is_number(mixing) or not 0 <= mixing < 1:
            raise invalid(
                f"mixing={mixing!r} must be a number from 0 (the common weights) to less than 1 "
                "(almost the rank's own)"
            )
        if not self:
            raise invalid(
                f"mixing={mixing!r} needs an exchange that goes on during local steps; give "
                "overlap= or delay=1"
            )

    def __bool__(self) -> bool:
        """Whether local steps are taken while an exchange is running."""
        return bool(self.delay or self.overlap)

    def settings(self) -> dict[str, object]:
        """The settings that must be equal on all ranks."""
        return dataclasses.asdict(self)
