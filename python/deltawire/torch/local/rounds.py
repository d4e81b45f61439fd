"""Rounds of local steps: where in them a rank is, and the exchange that is under way."""

import os
import threading
import time

from deltawire.errors import DeltawireError, make_error, with_advice
from deltawire.history import History
from deltawire.torch.local.weights import Weights


class Round:
    """An exchange under way: of all weights, or of one fragment of them.

    `complete` runs on a thread of the session's and keeps the weights' memory until it is over,
    whoever has stopped waiting meanwhile; the rest belongs to the training loop.

    Args:
        weights: whose memory is exchanged.
        fragment: of these weights.
        history: gets a record.
        steps: local steps that the fragment's changes stand for.

    Attributes:
        error: the first, None as long as there is none.
    """

    def __init__(self, weights: Weights, fragment: int, history: History, steps: int) -> None:
        self.fragment = fragment
        self.steps = steps
        self.error: DeltawireError | None = None
        self._weights = weights
        self._history = history
        self._left = weights.bucket_count(fragment)
        self._over = threading.Event()
        self._began = self._ended = time.monotonic()
        self._waited = 0.0
        self._process = os.getpid()

    def complete(self, error: DeltawireError | None, report) -> None:
        """Of one bucket; called in the order of buckets, for each of them, whatever happens."""
        try:
            self._left -= 1
            also = {"local_steps": self.steps, "fragment": self.fragment}
            if error is not None and error.code == "Mismatch" and self._weights.outer is not None:
                error = with_advice(error, _DIFFERENT_WEIGHTS)
            error = self._history.end(error, report, self._left == 0, also)
            self.error = self.error or error
        finally:  # without it nobody would ever end the wait
            if self._left == 0:
                self._ended = time.monotonic()
                self._over.set()

    def submitted(self) -> None:
        """All buckets are: from here on the training loop may wait, or do other things."""
        self._began = time.monotonic()

    def settle(self) -> None:
        """Until the last bucket is over, well or not. "State" in a forked child, where nobody will
        ever say so."""
        if os.getpid() != self._process:
            raise make_error(
                "State", "a forked child has no part in the exchange that its parent has begun"
            )
        began = time.monotonic()
        self._over.wait()
        self._waited += time.monotonic() - began

    def arrived(self) -> "Round":
        """Makes it one that is over, of which a checkpoint has the means; returns it."""
        self._over.set()
        return self

    def times(self) -> tuple[float, float]:
        """Milliseconds (that it took, that the training loop waited for it), when it is over."""
        return 1e3 * max(0.0, self._ended - self._began), 1e3 * self._waited


_DIFFERENT_WEIGHTS = (
    "the outer optimizer runs on each rank by itself: change its settings (a schedule of its rate) "
    "on every rank alike, and use one version of torch and one kind of processor"
)


class Progress:
    """Where in its rounds a rank is.

    Attributes:
        exchanges: that have been applied; the number of the next one's step.
        next: the fragment whose turn is next in this round.
        since: of each fragment, the local steps since its last exchange began.
    """

    def __init__(self, fragments: int) -> None:
        self.exchanges = 0
        self.next = 0
        self.since = [0] * fragments

    def count_step(self) -> None:
        """A local step moves all fragments."""
        self.since = [steps + 1 for steps in self.since]

    def due(self, local_steps: int, steps: int) -> bool:
        """Whether the next fragment's turn has come, in a round of so many steps: the last one's
        comes with the last step, and the others' are spread evenly before it."""
        count = len(self.since)
        return self.next < count and local_steps * count >= (self.next + 1) * steps

    @property
    def round_is_over(self) -> bool:
        """Whether every fragment has had its turn."""
        return self.next == len(self.since)

    def state(self) -> dict:
        """For checkpoints."""
        return {"exchanges": self.exchanges, "next": self.next, "since": list(self.since)}

    def check_state(self, state: object) -> None:
        """Raises InvalidArgumentError for anything but what `state()` of as many fragments gave."""
        numbers = ()
        if isinstance(state, dict) and isinstance(state.get("since"), list):
            numbers = (state.get("exchanges"), state.get("next"), *state["since"])
        if not numbers or not all(type(number) is int and number >= 0 for number in numbers):
            raise make_error("InvalidArgument", f"the state's progress={state!r} is damaged")
        if len(state["since"]) != len(self.since) or state["next"] >= len(self.since):
            raise make_error(
                "InvalidArgument",
                f"the state is of {len(state['since'])} fragments, this trainer has "
                f"{len(self.since)}",
            )

    def load(self, state: dict) -> None:
        """Puts back what `state()` gave, after `check_state`."""
        self.exchanges, self.next = state["exchanges"], state["next"]
        self.since = list(state["since"])


class Waits:
    """How long exchanges took, and how much of it the training loop waited for them. Thread rule:
    `add` belongs to the training loop, `metrics` to any thread."""

    def __init__(self) -> None:
        self._last = self._totals = (0.0, 0.0)

    def add(self, took: float, waited: float) -> None:
        """Of one exchange, in milliseconds."""
        self._totals = (self._totals[0] + took, self._totals[1] + waited)
        self._last = (took, waited)

    def metrics(self) -> dict:
        """Of the last exchange and of all; see LocalSteps.metrics."""
        (took, waited), (total_took, total_waited) = self._last, self._totals
        return {
            "under_way_ms": took,
            "waited_ms": waited,
            "total_under_way_ms": total_took,
            "total_waited_ms": total_waited,
            "hidden": max(0.0, 1 - total_waited / total_took) if total_took else None,
        }
