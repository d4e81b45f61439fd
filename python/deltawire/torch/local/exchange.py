"""The exchanges of LocalSteps: begun, waited for at once or a round later, applied, kept in a
checkpoint on their way."""

import os
import threading
import time

from deltawire import _core
from deltawire.errors import DeltawireError, make_error, with_advice
from deltawire.history import History
from deltawire.torch.local.momentum import Momentum
from deltawire.torch.local.outer import state_digest
from deltawire.torch.local.weights import Weights, values_digest


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


class LocalExchange:
    """At most one exchange under way, of a fragment of the weights.

    Args:
        weights: to be exchanged.
        momentum: to be masked after an exchange, or None.
        delay: 1: an exchange is finished when the next one begins; 0: at once.
        timeout_ms: for each bucket.

    Raises:
        InvalidArgumentError: another delay.

    Attributes:
        progress: where in its rounds this rank is.
        waits: what exchanges took, and what the training loop waited.
    """

    def __init__(
        self, weights: Weights, momentum: Momentum | None, delay: int, timeout_ms: int
    ) -> None:
        if isinstance(delay, bool) or delay not in (0, 1):
            raise make_error(
                "InvalidArgument",
                f"delay={delay!r} must be 0 (ranks wait for each exchange) or 1 (it goes on during "
                "the next round)",
            )
        self.progress, self.waits = Progress(weights.fragment_count), Waits()
        self._weights = weights
        self._momentum = momentum
        self._momenta: list = []
        self._delay = delay
        self._timeout_ms = timeout_ms
        self._under_way: Round | None = None
        self._failed: DeltawireError | None = None  # the caller was not told yet
        self._torn = False

    def settings(self) -> dict[str, object]:
        """What of it must be equal on all ranks."""
        weights = self._weights
        counts = {"delay": self._delay, "fragments": weights.fragment_count}
        return {"outer": weights.outer, **counts}

    def connect(self, session: _core.Session, history: History) -> None:
        """What exchanges go through, and where their records go."""
        self._session = session
        self._history = history

    @property
    def failed(self) -> bool:
        """Whether `finish` would raise what an exchange under way has ended with."""
        under_way = self._under_way
        return self._failed is not None or (under_way is not None and under_way.error is not None)

    def begin(self, fragment: int) -> None:
        """Finishes the exchange under way, and begins a fragment's; with delay=0 finishes that,
        too."""
        self.finish()
        weights, progress = self._weights, self.progress
        weights.check_model()
        self._momenta = self._momentum.tensors(fragment) if self._momentum else []
        round_ = Round(weights, fragment, self._history, progress.since[fragment])
        last, agreed = weights.bucket_count(fragment) - 1, weights.agreed(fragment)
        for bucket in range(last + 1):
            changes = weights.changes_of(fragment, bucket)
            step = _core.Step(progress.exchanges, bucket, bucket == last, agreed=agreed, timed=True)
            self._history.ready(tuple(change[0] for change in changes))
            self._session.submit(changes, step, self._timeout_ms, round_.complete)
        round_.submitted()
        self._under_way = round_
        progress.since[fragment] = 0
        if self._delay:
            weights.mark_start(fragment)
        else:
            self.finish()

    def settle(self) -> Round | None:
        """Waits for the exchange under way, if there is one, and returns it; None, too, where it
        has failed: its changes wait for the next one, and its error for `finish`."""
        round_ = self._under_way
        if round_ is not None:
            round_.settle()
            if round_.error is not None:
                self.progress.since[round_.fragment] += round_.steps
                self._under_way, self._failed = None, round_.error
        return self._under_way

    def finish(self) -> None:
        """Waits for the exchange under way, if there is one, and applies it; raises its error."""
        round_ = self.settle()
        if self._failed is not None:
            raise self._failed
        if round_ is None:
            return
        self._torn = True  # until all is applied, whatever exception comes from outside
        self._under_way = None
        self._weights.apply_means(round_.fragment)
        self.progress.exchanges += 1
        self.waits.add(*round_.times())
        if self._momentum:
            self._momentum.mask(self._session, self._momenta)
        self._torn = False

    def state(self) -> dict:
        """For checkpoints: copies of all weights, where the rounds stand, and the exchange under
        way, which is waited for."""
        if self._torn:
            raise make_error(
                "State",
                "an exception (Ctrl-C, or an outer optimizer's) came while the weights of a round "
                "were set, and some of them are old, some new: go on from the last checkpoint",
            )
        state = {"under_way": None}
        if (round_ := self.settle()) is not None:
            state["under_way"] = {
                "fragment": round_.fragment,
                "steps": round_.steps,
                **self._weights.state_under_way(round_.fragment),
            }
        return state | {"progress": self.progress.state(), **self._weights.state()}

    def keys(self) -> tuple[str, ...]:
        """What `state` has."""
        outer = ("outer",) if self._weights.outer else ()
        return ("reference", "parameters", "origins", "progress", "under_way", *outer)

    def check_state(self, state: dict) -> None:
        """Raises InvalidArgumentError where a state with all keys is of other weights."""
        if "outer" in state and self._weights.outer is None:
            raise make_error(
                "InvalidArgument",
                "the state has an outer optimizer, and this trainer has none; give it outer=, as "
                "the one that was saved had",
            )
        self.progress.check_state(state["progress"])
        self._weights.check_state(state)
        if (under_way := state["under_way"]) is not None:
            numbers = [under_way.get("fragment"), under_way.get("steps")]
            if (
                not all(type(number) is int and number >= 0 for number in numbers)
                or numbers[0] >= self._weights.fragment_count
                or not {"means", "start"} <= under_way.keys()
            ):
                raise make_error(
                    "InvalidArgument",
                    "the state's exchange under way is damaged, or of another number of fragments",
                )
            self._weights.check_state_under_way(under_way, under_way["fragment"])

    def alike(self, states: list[dict]) -> str:
        """What of these states all ranks must have alike. Raises InvalidArgumentError where one is
        of other weights, or they differ among themselves."""
        for state in states:
            self.check_state(state)
        found = {f"round {state['round']}, {_digest(state)}": None for state in states}
        if len(found) > 1:
            raise make_error(
                "InvalidArgument",
                f"the states differ: one is of {', another of '.join(found)}; give those that were "
                "saved between the same two rounds",
            )
        return next(iter(found))

    def load(self, state: dict) -> None:
        """Puts back what `state` gave, after `check_state`; nothing is under way."""
        self.progress.load(state["progress"])
        self._weights.load(state)
        if (under_way := state["under_way"]) is not None:
            fragment = under_way["fragment"]
            self._weights.load_under_way(under_way, fragment)
            round_ = Round(self._weights, fragment, self._history, under_way["steps"])
            self._under_way = round_.arrived()


def _digest(state: dict) -> str:
    place = state["progress"]
    under_way = state["under_way"] or {"fragment": "none", "means": {}}
    return (
        f"reference {values_digest(state['reference'])} after {place['exchanges']} exchanges, "
        f"fragment under way {under_way['fragment']} with {values_digest(under_way['means'])}"
        + (f", outer optimizer {state_digest(state['outer'])}" if "outer" in state else "")
    )
