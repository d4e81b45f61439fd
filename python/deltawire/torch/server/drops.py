"""Workers that servers have gone on without."""

import logging
from typing import Any

from deltawire import _core

logger = logging.getLogger("deltawire")


class Drops:
    """Of one server, said once each (logger "deltawire", WARNING).

    Attributes:
        all: `rank`, the server's `step` that went on without it, `time` (as time.time()), `code`
            and `why` of its loss; in the order of the losses.
    """

    def __init__(self, core: _core.ParameterServer, rank: int, workers: int) -> None:
        self.all: list[dict[str, Any]] = []
        self._core = core
        self._rank = rank
        self._workers = workers

    def tell(self) -> None:
        """What is new after a step; by the thread that makes the steps."""
        for each in self._core.dropped[len(self.all) :]:
            names = ("rank", "step", "time", "code", "why")
            self.all.append({name: getattr(each, name) for name in names})
            logger.warning(
                "rank %d: worker rank %d is dropped in step %d, and what waited there to be sent "
                "is lost; %d of %d workers go on: %s",
                self._rank,
                each.rank,
                each.step,
                self._workers - len(self.all),
                self._workers,
                each.why,
            )
