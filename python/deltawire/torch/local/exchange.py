"""The exchanges of LocalSteps: from their beginning until they are applied, also in checkpoints."""

import functools

import torch

from deltawire import _core
from deltawire.errors import DeltawireError, invalid, wrong_state
from deltawire.session.history import History
from deltawire.torch.core.device.choice import BY_CPU, Choice, Exchange, Twins, choose
from deltawire.torch.core.device.staging import Staging
from deltawire.torch.local.changes import device_borders
from deltawire.torch.local.momentum import Momentum
from deltawire.torch.local.outer import state_digest
from deltawire.torch.local.overlap import Overlap
from deltawire.torch.local.round import Round
from deltawire.torch.local.weights import Weights


class Progress:
    """A rank's position in its rounds.

    Attributes:
        exchanges: number of applied exchanges, which is the next one's step number.
        next: the next fragment to be exchanged in this round.
        since: for each fragment, local steps since its last exchange began.
    """

    def __init__(self, fragments: int) -> None:
        self.exchanges = 0
        self.next = 0
        self.since = [0] * fragments

    def count_step(self) -> None:
        """Counts a local step, which changes all fragments."""
        self.since = [steps + 1 for steps in self.since]

    def due(self, local_steps: int, steps: int) -> bool:
        """Whether the next fragment is due in a round of `steps` steps: the last one after the last
        step, the others evenly spread before it."""
        count = len(self.since)
        return self.next < count and local_steps * count >= (self.next + 1) * steps

    @property
    def round_is_over(self) -> bool:
        """Whether every fragment was exchanged."""
        return self.next == len(self.since)

    def state(self) -> dict:
        """The state for a checkpoint."""
        return {"exchanges": self.exchanges, "next": self.next, "since": list(self.since)}

    def check_state(self, state: object) -> None:
        """Raises InvalidArgumentError unless it is a `state()` with as many fragments."""
        numbers = ()
        if isinstance(state, dict) and isinstance(state.get("since"), list):
            numbers = (state.get("exchanges"), state.get("next"), *state["since"])
        if not numbers or not all(type(number) is int and number >= 0 for number in numbers):
            raise invalid(f"the state's progress={state!r} is damaged")
        if len(state["since"]) != len(self.since) or state["next"] >= len(self.since):
            raise invalid(
                f"the state is of {len(state['since'])} fragments, this trainer has "
                f"{len(self.since)}"
            )

    def load(self, state: dict) -> None:
        """Restores what `state()` returned, after `check_state`."""
        self.exchanges, self.next = state["exchanges"], state["next"]
        self.since = list(state["since"])


class Waits:
    """Durations of exchanges, and how long the training loop waited for them.

    Thread rule: `add` belongs to the training loop, `metrics` to any thread.
    """

    def __init__(self) -> None:
        self._last = self._totals = (0.0, 0.0)

    def add(self, took: float, waited: float) -> None:
        """Adds one exchange, in milliseconds."""
        self._totals = (self._totals[0] + took, self._totals[1] + waited)
        self._last = (took, waited)

    def metrics(self) -> dict[str, float | None]:
        """The times of the last exchange, and of all; see LocalSteps.metrics."""
        (took, waited), (total_took, total_waited) = self._last, self._totals
        return {
            "under_way_ms": took,
            "waited_ms": waited,
            "total_under_way_ms": total_took,
            "total_waited_ms": total_waited,
            "hidden": max(0.0, 1 - total_waited / total_took) if total_took else None,
        }


def who_codes(
    weights: Weights, twins: Twins, spec: _core.Spec, timeout_ms: int, rank: int | None
) -> Choice:
    """Twins on the weights' device if `twins` wants them, else the CPU. Raises InvalidArgumentError
    where twins can't code the changes.

    Args:
        spec: of the exchange.
        timeout_ms: for a call of the device.
        rank: this one; None: not known yet.
    """
    dtypes = {each.dtype for each in weights.changes.tensors}
    return choose(twins, Exchange(spec, weights.devices, dtypes, timeout_ms / 1e3, rank))


class LocalExchange:
    """Exchanges fragments of the weights, at most one at a time, through memory on the CPU, or
    where their device codes them.

    Args:
        weights: to be exchanged.
        momentum: to be masked after an exchange, or None.
        overlap: when an exchange is finished.
        timeout_ms: for each bucket.
        choice: who codes.

    Attributes:
        progress: this rank's position in its rounds.
        waits: durations of exchanges and waits.
    """

    def __init__(
        self,
        weights: Weights,
        momentum: Momentum | None,
        overlap: Overlap,
        timeout_ms: int,
        choice: Choice = BY_CPU,
    ) -> None:
        self.progress, self.waits = Progress(weights.fragment_count), Waits()
        self._weights = weights
        self._momentum = momentum
        self._momenta: list = []
        self._overlap = overlap
        self._timeout_ms = timeout_ms
        self.choice = choice
        self._under_way: Round | None = None
        self._failed: DeltawireError | None = None  # the caller does not know yet
        self._torn = False

    def settings(self) -> dict[str, object]:
        """The settings that must be equal on all ranks."""
        weights = self._weights
        return {
            "outer": weights.outer,
            **self._overlap.settings(),
            "fragments": weights.fragment_count,
            "holds_back": weights.holds_back,
            "device_borders": device_borders(weights.names, weights.parameters),  # of buckets, too
            "mask_momentum": self._momentum is not None,
        }

    def connect(self, session: _core.Session, history: History) -> None:
        """Sets the session of the exchanges, and the history that records them."""
        self._session = session
        self._history = history
        self._staging = Staging(
            self._timeout_ms / 1e3,
            self._weights.changes.host_bytes,
            history.rank,
            self.choice.parts,
            values="weight changes",
        )

    def close(self) -> None:
        """Ends the thread of copies, when no exchange is under way; idempotent."""
        self._staging.close()

    @property
    def failed(self) -> bool:
        """Whether `finish` would raise the error of an exchange."""
        under_way = self._under_way
        return self._failed is not None or (under_way is not None and under_way.error is not None)

    def count_step(self) -> None:
        """Counts a local step; finishes the running exchange if it was to take no more."""
        self.progress.count_step()
        round_, steps = self._under_way, self._overlap.overlap
        if round_ is not None and 0 < steps <= self.progress.since[round_.fragment]:
            self.finish()

    def begin(self, fragment: int) -> None:
        """Finishes the running exchange, then begins that of a fragment; without an overlap
        finishes that, too."""
        self.finish()
        weights, progress = self._weights, self.progress
        weights.check_model()
        self._momenta = self._momentum.tensors(fragment) if self._momentum else []
        round_ = Round(weights, fragment, self._history, progress.since[fragment])
        self._wait_for_values()
        last, agreed = weights.changes.bucket_count(fragment) - 1, weights.agreed(fragment)
        for bucket in range(last + 1):
            step = _core.Step(progress.exchanges, bucket, bucket == last, agreed=agreed, timed=True)
            self._submit(round_, bucket, step)
        round_.submitted()
        self._under_way = round_
        progress.since[fragment] = 0
        if not self._overlap:
            self.finish()
        elif self._overlap.mixing is None:
            weights.mark_start(fragment)

    def _submit(self, round_: Round, bucket: int, step: _core.Step) -> None:
        """Hands a bucket's changes to the session, at once or when they are on the CPU. What the
        session keeps has no reference to it."""
        changes, session, staging = self._weights.changes, self._session, self._staging
        block = self._weights.changes_of(round_.fragment, bucket)
        part, _ = changes.bucket(round_.fragment, bucket)
        self._history.ready(tuple(self._weights.names[part]))
        store = functools.partial(staging.store, bucket, block)
        complete = functools.partial(round_.complete, store)

        def submit(memory: torch.Tensor) -> None:
            at = changes.at(round_.fragment, bucket, memory)
            session.submit(at, step, self._timeout_ms, complete)

        staging.load(bucket, block, submit, functools.partial(round_.fail, session))

    def _wait_for_values(self) -> None:
        """Where values are about to be read on a device: waits for it, within the timeout."""
        if self._weights.looks_at_values or self._momenta:
            self._staging.wait(set(self._weights.devices))

    def settle(self) -> Round | None:
        """Waits for the running exchange, if any, and returns it. Returns None also if it has
        failed: then its changes go into the next one, and `finish` raises its error."""
        round_ = self._under_way
        if round_ is not None:
            round_.settle()
            changes = self._weights.changes
            for bucket in range(changes.bucket_count(round_.fragment)):
                self._staging.release(changes.bucket(round_.fragment, bucket)[1])
            if round_.error is not None:
                self.progress.since[round_.fragment] += round_.steps
                self._under_way, self._failed = None, round_.error
        return self._under_way

    def finish(self) -> None:
        """Waits for the running exchange, if any, and applies it. Raises its error."""
        round_ = self.settle()
        if self._failed is not None:
            raise self._failed
        if round_ is None:
            return
        self._staging.follow()
        self._wait_for_values()
        self._torn = True  # until all is applied, whatever exception comes from outside
        self._under_way = None
        own_share = self._overlap.mixing
        if own_share is not None and not self.progress.since[round_.fragment]:
            own_share = 0.0  # without a step since it began: all ranks end with the same weights
        self._weights.apply_means(round_.fragment, own_share)
        self.progress.exchanges += 1
        self.waits.add(*round_.times())
        if self._momentum:
            self._momentum.mask(self._session, self._momenta)
        self._torn = False

    def state(self) -> dict:
        """The state for a checkpoint: copies of all weights on the CPU, the position in the rounds,
        and the running exchange, for which it waits."""
        if self._torn:
            raise wrong_state(
                "an exception (Ctrl-C, or an outer optimizer's) came while the weights of a round "
                "were set, and some of them are old, some new: go on from the last checkpoint"
            )
        state, round_ = {"under_way": None}, self.settle()
        self._staging.follow()
        self._staging.wait(set(self._weights.devices))
        if round_ is not None:
            state["under_way"] = {
                "fragment": round_.fragment,
                "steps": round_.steps,
                **self._weights.state_under_way(round_.fragment),
            }
        weights = self._weights.state(None if round_ is None else round_.fragment)
        return state | {"progress": self.progress.state(), **weights}

    def keys(self) -> tuple[str, ...]:
        """The keys of `state()`."""
        outer = ("outer",) if self._weights.outer else ()
        held = ("held",) if self._weights.holds_back else ()
        return ("reference", "parameters", "origins", "progress", "under_way", *held, *outer)

    def check_state(self, state: dict) -> None:
        """Raises InvalidArgumentError if a state, which has all keys, is of other weights."""
        if "outer" in state and self._weights.outer is None:
            raise invalid(
                "the state has an outer optimizer, and this trainer has none; give it outer=, as "
                "the one that was saved had"
            )
        if "held" in state and not self._weights.holds_back:
            raise invalid(
                'the state has changes that were held back, by the recipe "pulseloco", which this '
                "trainer hasn't"
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
                raise invalid(
                    "the state's exchange under way is damaged, or of another number of fragments"
                )
            self._weights.check_state_under_way(under_way, under_way["fragment"])

    def alike(self, states: list[dict]) -> str:
        """What all ranks must have in common of these states. Raises InvalidArgumentError if one is
        of other weights, or if they differ."""
        for state in states:
            self.check_state(state)
        found = {f"round {state['round']}, {_digest(state)}": None for state in states}
        if len(found) > 1:
            raise invalid(
                f"the states differ: one is of {', another of '.join(found)}; give those that were "
                "saved between the same two rounds"
            )
        return next(iter(found))

    def load(self, state: dict) -> None:
        """Restores what `state()` returned, after `check_state`, while no exchange is running."""
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
        f"reference {state_digest(state['reference'])} after {place['exchanges']} exchanges, "
        f"fragment under way {under_way['fragment']} with {state_digest(under_way['means'])}"
        + (f", outer optimizer {state_digest(state['outer'])}" if "outer" in state else "")
    )
