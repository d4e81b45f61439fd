"""Chooses, together with the other ranks and between two steps, which exchange comes next."""

import logging
import statistics
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist

from deltawire.session.history import History
from deltawire.torch.auto import decision as decisions
from deltawire.torch.auto.connector import LAST_STEP, Connector
from deltawire.torch.auto.decision import Decision
from deltawire.torch.auto.measuring import Measuring, StepClock
from deltawire.torch.auto.native import HALVED
from deltawire.torch.core.leader_decides import leader_decides
from deltawire.torch.ddp.hook import Hook

logger = logging.getLogger("deltawire")

WARM_UP = 2  # steps after a change: DDP cuts its buckets anew after the first, caches are cold
MEASURED = 8  # steps that a decision is made from
WATCHED = 50  # steps between two checks that exchanges take as long as before
MOST_WATCHED = 800  # the distance doubles as long as nothing changes


class Chooser:
    """Goes from phase to phase: measuring, trying (compressed and native steps alternate),
    compressing, native, leaving (last steps, which send the residuals).

    Thread rule: the training loop and its backward pass; `median_ms` and attributes: any thread.

    Args:
        connector: opens exchanges.
        measuring: makes this rank's measurements.
        history: the one that all exchanges continue.

    Attributes:
        hook: the hook that compresses; None: the native all-reduce.
        decision: the latest one; None before the first plan, and while another is needed.
        halves: whether the native all-reduce of the step under way is `HALVED`.
        phase: see above.
        plans: the number of plans made.
    """

    def __init__(self, connector: Connector, measuring: Measuring, history: History) -> None:
        self.hook: Hook | None = None
        self.decision: Decision | None = None
        self.halves = False
        self.phase = "measuring"
        self.plans = 0
        self._connector = connector
        self._measuring = measuring
        self._history = history
        self._clock = StepClock(connector.clock)
        self._watched = WATCHED
        self._leaves_after = 1  # steps of float32
        self._measured_ms: float | None = None  # of the steps before the last check
        self.enter("measuring" if connector.place[1] > 1 else "native")

    # During a step.

    @property
    def is_choice_used(self) -> bool:
        """Whether a codec, or the native all-reduce of halves, takes the place of the native one
        of float32."""
        halves = self.decision is not None and self.decision.spec == HALVED
        return self.hook is not None or halves

    @property
    def is_timed(self) -> bool:
        """Native steps are timed only shortly before they are looked at, because timing costs a
        call into Python for each bucket."""
        return self.phase != "native" or self._steps >= self._due - MEASURED

    def begin(self) -> None:
        """A forward pass begins."""
        if self.is_timed:
            self._clock.begin()

    def hook_for(self, bucket: dist.GradBucket) -> Hook | None:
        """Called for each bucket before its exchange: the hook that exchanges it, or None for the
        native all-reduce."""
        last = bucket.is_last()
        # Alternating steps see the same load; residuals wait for the next compressed step.
        coded = self.is_choice_used and not (self.phase == "trying" and self._steps % 2)
        self.halves = coded and self.hook is None
        if self.is_timed:
            self._clock.ready(last, coded)
        if not coded and self.phase == "measuring" and self._steps == WARM_UP - 1:
            self._measuring.sample(bucket)
        self._steps += last
        return self.hook if coded else None

    def over(self, exchanged: torch.futures.Future) -> torch.Tensor:
        """The exchange of a bucket of a timed step is over; returns its result, or raises."""
        self._clock.over()
        return exchanged.value()

    # Between two steps.

    @property
    def is_due(self) -> bool:
        """Whether the ranks communicate before the next step's first bucket."""
        return self._steps >= self._due

    def enter(self, phase: str) -> None:
        """Begins a phase."""
        self._measured_ms = self.median_ms() if self.phase == phase else None
        self.phase = phase
        self._steps = 0  # begun since then
        self._due = {
            "measuring": WARM_UP + MEASURED,  # and then a step for each piece
            "trying": WARM_UP + 2 * MEASURED,
            "leaving": self._leaves_after,
        }.get(phase, self._watched)
        self._clock.restart(WARM_UP if phase in ("measuring", "trying") else 1)
        if self._connector.place[1] == 1:
            self._due = sys.maxsize  # nobody to exchange with

    def turn(self) -> None:
        """The ranks communicate, and switch together. Raises DeltawireError, on every rank."""
        if self.phase == "leaving":
            self._leave()
        elif self.phase == "measuring":
            if self._measuring.advance(self._said_of(False)):
                self._plan()
        elif self.phase == "trying":
            self._judge()
        else:
            self._watch()

    def resume(self, hook: Hook | None, phase: str, decision: Decision | None) -> None:
        """Continues with a saved choice."""
        if self.hook is not None:
            self.hook.close()
        self.hook, self.decision = hook, decision
        self._measuring.end()
        self.enter(phase)

    def median_ms(self) -> float | None:
        """The median of the latest steps on this rank; None before them."""
        ends = self._said_of(self.is_choice_used)["ends"]
        return 1e3 * statistics.median(ends) if ends else self._measured_ms

    def _said_of(self, coded: bool) -> dict:
        times = [each for each in self._clock.times() if each.coded == coded]
        return {"ready": [each.ready for each in times], "ends": [each.end for each in times]}

    def _answered(self, own: dict, answer: Callable[[list[dict]], dict]) -> dict:
        """Rank 0's answer to the reports of all ranks."""
        return leader_decides(own, answer, self._connector.group, self._connector.device)

    def _decided(
        self, own: dict, decide: Callable[[list[dict]], Decision | None]
    ) -> Decision | None:
        def answer(said: list[dict]) -> dict:
            decision = decide(said)
            return {} if decision is None else decision.as_dict()

        decided = self._answered(own, answer)
        return decisions.decision_of(decided) if decided else None

    def _plan(self) -> None:
        tier, own = self._connector.tier, self._measuring.figures()
        decision = self._decided(own, lambda said: decisions.choose(said, tier))
        if decision is None:  # too few whole steps, or gradients that are not finite
            self.enter("measuring")
            return
        self.plans += 1
        self._watched = WATCHED
        self._measuring.end()
        self.decision, steps = decision, ""
        if decision.spec is None:
            self.enter("native")
        elif decision.spec == HALVED:
            self.enter("trying")
        else:
            self.hook = self._connector.hook(decision.spec, self._history)
            steps = f"; {rules.text()}" if (rules := self.hook.optimizer_rules).name else ""
            self.enter("trying")
        self._log(logging.INFO, f"{decision.reason} (tier {tier}){steps}")

    def _judge(self) -> None:
        tried, own = self.decision, self._said_of(True) | {"native": self._said_of(False)}
        decision = self._decided(own, lambda said: decisions.judge(tried, said))
        if decision is None:
            self.enter("trying")
            return
        self.decision = decision
        if decision.spec is not None:
            self.enter("compressing")
            return
        self._log(logging.WARNING, decision.reason)
        self._begin_leaving()

    def _watch(self) -> None:
        decision, own = self.decision, self._said_of(self.is_choice_used)
        why = self._answered(own, lambda said: {"why": decisions.departs(decision, said)})["why"]
        if why is None:
            self._watched = min(2 * self._watched, MOST_WATCHED)
            self.enter(self.phase)
            return
        self._log(logging.INFO, why)
        self.decision = None
        self._begin_leaving()

    def _begin_leaving(self) -> None:
        """Leaves the exchange, after steps that send its residuals, if it has any."""
        if self.hook is not None and self.hook.parsed_spec.keeps_residual:
            self.hook.go_to_step(LAST_STEP)
            self._leaves_after = 1
            self.enter("leaving")
        else:
            self._leave()

    def _leave(self) -> None:
        """Ends the exchange, unless something waits on a rank: a part whose gradient was all zeros
        was not sent, for example that of a parameter which no rank has used, and nothing is in a
        step that was not finite. Then more steps follow, and the ranks look at twice the
        distance."""
        if self.phase == "leaving" and (name := self._waiting()) is not None:
            if self._leaves_after == 1:
                self._log(
                    logging.INFO,
                    f"steps of float32 follow until one has a gradient of '{name}', of which "
                    "something waits",
                )
            self._leaves_after = min(2 * self._leaves_after, WATCHED)
            self.enter("leaving")
            return
        if self.hook is not None:
            self.hook.close()
            self.hook = None
        self.enter("native" if self.decision is not None else "measuring")

    def _waiting(self) -> str | None:
        """The name of a tensor of which something waits on some rank."""
        rows = self.hook.explain().rows
        own = {"name": next((row.name for row in rows if row.residual_norm != 0), None)}
        none = {"name": None}
        found = self._answered(own, lambda said: next((e for e in said if e["name"]), none))
        return found["name"]

    def _log(self, level: int, text: str) -> None:
        if self._history.rank == 0:
            logger.log(level, "auto: %s", text)
