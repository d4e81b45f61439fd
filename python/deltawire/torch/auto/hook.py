"""The hook of `register(model, "auto")`: measures, lets rank 0 plan, and carries out its plan. (No
`from __future__ import annotations` here: DDP refuses annotations that are strings.)"""

import json
import logging
import statistics
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire import _core
from deltawire.door import STATE_VERSION
from deltawire.errors import check_state_given
from deltawire.torch.auto import decision as decisions
from deltawire.torch.auto.connector import LAST_STEP, Connector
from deltawire.torch.auto.decision import Decision
from deltawire.torch.auto.explanation import AutoExplanation
from deltawire.torch.auto.measuring import Measuring
from deltawire.torch.auto.native import NATIVE, NativeExchange, all_reduce
from deltawire.torch.auto.step_clock import StepClock
from deltawire.torch.core.checkpoint import kept_by
from deltawire.torch.core.detached_session import DetachedSession
from deltawire.torch.core.leader_decides import leader_decides
from deltawire.torch.ddp.hook import Hook, check_failed
from deltawire.torch.metrics.explanation import TensorRow
from deltawire.torch.participant import Participant

logger = logging.getLogger("deltawire")

WARM_UP = 2  # steps after a change: DDP cuts its buckets anew after the first, caches are cold
MEASURED = 8  # steps that a decision is made from
WATCHED = 50  # steps between two looks at whether exchanges take what they took
MOST_WATCHED = 800  # the distance doubles as long as nothing changes


class AutoHook(Participant):
    """An exchange that chooses its own codec: it uses the native all-reduce while it measures, then
    the codec of rank 0's plan or the native all-reduce; made by `register`.

    All ranks switch at the same step, in its forward pass, by collectives on the model's process
    group. Before an exchange is replaced, one step of float32 sends its residuals exactly.

    Attributes:
        rank, world_size: in the process group.
        group: the model's process group.

    Thread rule: as `Hook`.
    """

    _kind = "hook"
    _nonfinite_advice = Hook._nonfinite_advice

    def __init__(
        self,
        place: tuple[int, int],
        connector: Connector | None = None,
        measuring: Measuring | None = None,
    ) -> None:
        """Without connector and measuring it is a copy, which asks to be registered."""
        self._native = NativeExchange(measuring) if measuring else DetachedSession(NATIVE)
        self._hook: Hook | None = None  # that compresses
        self._decision: Decision | None = None
        group = connector.group if connector is not None else None
        super().__init__(self._native, place, group=group)
        self._connector = connector
        self._measuring = measuring
        self._clock = StepClock()
        self._plans = 0
        self._watched = WATCHED
        self._phase = "native"
        self._measured_ms: float | None = None  # of steps before the last look at them
        self._enter("measuring" if measuring is not None else "native")
        self._check_forward = torch.compiler.disable(_after_forward)
        self._begin = torch.compiler.disable(_before_forward)

    def __reduce__(self):
        """For copy and pickle: a session never has two owners."""
        return AutoHook, ((self.rank, self.world_size),)

    # What DDP calls.

    def before_forward(self, ddp_model: DistributedDataParallel, _) -> None:
        """A forward pre-hook of the DDP model: starts the clock of a step. Raises `last_error`
        after a failure, on every rank."""
        self._begin(self, ddp_model)

    def after_forward(self, ddp_model: DistributedDataParallel, inputs, outputs) -> None:
        """A forward hook of the DDP model, between two steps: here the ranks decide. Raises
        DeltawireError on every rank if that fails."""
        self._check_forward(self, ddp_model, inputs, outputs)

    def deltawire_hook(
        self, state: object, bucket: dist.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        """DDP's communication hook: a Future of the bucket's mean over all ranks, in place. Never
        raises and never returns None."""
        last = bucket.is_last()
        # By turns with native steps, which see the same load; residuals wait for the next turn.
        coded = self._hook is not None and not (self._phase == "trying" and self._steps % 2)
        timed = self._is_timed
        if timed:
            self._clock.ready(last, coded)
        if coded:
            exchanged = self._hook.deltawire_hook(state, bucket)
        else:
            if self._phase == "measuring" and self._steps == WARM_UP - 1:
                self._measuring.sample(bucket)
            exchanged = all_reduce(self.group, bucket)
        self._steps += last
        return exchanged.then(self._over) if timed else exchanged

    @property
    def _is_timed(self) -> bool:
        """Native steps are timed only shortly before they are looked at, because timing costs a
        call into Python for each bucket."""
        return self._phase != "native" or self._steps >= self._due - MEASURED

    def _over(self, exchanged: torch.futures.Future) -> torch.Tensor:
        self._clock.over()
        return exchanged.value()  # or raises what went wrong

    # Between two steps.

    def _enter(self, phase: str) -> None:
        """Begins a phase: measuring, trying, compressing, native or leaving."""
        self._measured_ms = self._median_ms() if self._phase == phase else None
        self._phase = phase
        self._steps = 0  # begun since then
        self._due = {
            "measuring": WARM_UP + MEASURED,  # and then a step for each piece
            "trying": WARM_UP + 2 * MEASURED,
            "leaving": 1,
        }.get(phase, self._watched)
        self._clock.restart(WARM_UP if phase in ("measuring", "trying") else 1)

    def _turn(self) -> None:
        """The ranks communicate, and switch together. Raises `last_error` after a failure."""
        if self.last_error is not None:
            raise self.last_error
        if self._phase == "leaving":
            self._leave()
        elif self._phase == "measuring":
            if self._measuring.advance(self._said_of(False)):
                self._plan()
        elif self._phase == "trying":
            self._judge()
        else:
            self._watch()

    def _said_of(self, coded: bool) -> dict:
        times = [each for each in self._clock.times() if each.coded == coded]
        return {"ready": [each.ready for each in times], "ends": [each.end for each in times]}

    def _decided(self, own: dict, decide) -> Decision | None:
        """Rank 0's decision from the reports of all ranks."""
        answer = leader_decides(own, lambda said: _answer(decide(said)), self.group)
        return decisions.decision_of(answer) if answer else None

    def _plan(self) -> None:
        tier, own = self._connector.tier, self._measuring.figures()
        decision = self._decided(own, lambda said: decisions.choose(said, tier))
        if decision is None:  # too few whole steps, or gradients that are not finite
            self._enter("measuring")
            return
        self._plans += 1
        self._watched = WATCHED
        self._measuring.end()
        self._install(decision)
        self._say(logging.INFO, f"{decision.reason} (tier {tier})")

    def _install(self, decision: Decision) -> None:
        self._decision = decision
        if decision.spec is None:
            self._enter("native")
            return
        self._use(self._connector.hook(decision.spec, self._history))
        self._enter("trying")

    def _use(self, hook: Hook | None) -> None:
        """Exchanges through this hook from now on; None: through the native all-reduce."""
        self._hook = hook
        self._session = self._native if hook is None else hook._session

    def _judge(self) -> None:
        tried, own = self._decision, self._said_of(True) | {"native": self._said_of(False)}
        decision = self._decided(own, lambda said: decisions.judge(tried, said))
        if decision is None:
            self._enter("trying")
            return
        self._decision = decision
        if decision.spec is not None:
            self._enter("compressing")
            return
        self._say(logging.WARNING, decision.reason)
        self._begin_leaving()

    def _watch(self) -> None:
        decision, own = self._decision, self._said_of(self._hook is not None)
        why = leader_decides(
            own, lambda said: {"why": decisions.departs(decision, said)}, self.group
        )
        if why["why"] is None:
            self._watched = min(2 * self._watched, MOST_WATCHED)
            self._enter(self._phase)
            return
        self._say(logging.INFO, why["why"])
        self._decision = None
        self._begin_leaving()

    def _begin_leaving(self) -> None:
        """Leaves the exchange, after one more step that sends its residuals, if it has any."""
        if self._hook is not None and _core.keeps_residual(self._hook.spec):
            self._hook.go_to_step(LAST_STEP)
            self._enter("leaving")
        else:
            self._leave()

    def _leave(self) -> None:
        """Ends the exchange after its last step. A step that was not finite sent nothing, and is
        repeated."""
        if self._phase == "leaving" and not self._history.records[-1]["finite"]:
            self._enter("leaving")
            return
        if self._hook is not None:
            self._hook.close()
            self._use(None)
        self._enter("native" if self._decision is not None else "measuring")

    def _say(self, level: int, text: str) -> None:
        if self.rank == 0:
            logger.log(level, "auto: %s", text)

    def _give_up(self, cause: BaseException) -> None:
        super()._give_up(cause)
        self._measuring.end()

    # What the training loop asks.

    @property
    def spec(self) -> str:
        """The exchange in use, canonical; "native" for the native all-reduce."""
        chosen = self._decision.spec if self._decision is not None and self._hook else None
        return chosen or NATIVE

    def metrics(self) -> dict:
        """As `Hook.metrics`, of the compressed steps, plus

        - choice: `spec`; phase: measuring, trying (compressed and native steps alternate),
          compressing, native, leaving (a last step that sends the residuals);
        - native_ms, predicted_ms: a step from its forward pass until its means are in place, as
          measured with the native all-reduce and as predicted with the choice; None before the
          first plan;
        - measured_ms: the same, the median of the latest steps on this rank; None before them;
        - plans: the number of plans made.
        """
        decision = self._decision
        return {
            **super().metrics(),
            "choice": self.spec,
            "phase": self._phase,
            "native_ms": decision.native_ms if decision else None,
            "predicted_ms": decision.predicted_ms if decision else None,
            "measured_ms": self._median_ms(),
            "plans": self._plans,
        }

    def _median_ms(self) -> float | None:
        ends = self._said_of(self._hook is not None)["ends"]
        return 1e3 * statistics.median(ends) if ends else self._measured_ms

    def explain(self) -> AutoExplanation:
        """The plan's table and, while a codec is in use, the codec of each tensor. Call between
        steps."""
        self._check_own()
        tensors = self._hook.explain() if self._hook is not None else None
        return AutoExplanation(self._connector.tier, self._phase, self._decision, tensors)

    def _rows(self) -> Sequence[TensorRow]:
        return self._hook.explain().rows if self._hook is not None else ()

    def _bucket_rows(self, rows: Sequence[TensorRow]) -> list[dict]:
        """Those of the last compressed step; none with the native all-reduce."""
        return super()._bucket_rows(rows) if self._hook is not None else []

    def state_dict(self) -> dict:
        """As `Hook.state_dict`, plus the choice, so that a run that loads it needs no measuring."""
        self._check_own()
        if self._hook is not None:
            state = self._hook.state_dict()
        else:
            nothing = kept_by(self.rank, torch.empty(0, dtype=torch.uint8))
            place = {"spec": NATIVE, "world_size": self.world_size, "steps": 0}
            state = {"version": STATE_VERSION, **place, "residuals": nothing}
        decision = self._decision.as_dict() if self._decision else None
        return {**state, "auto": json.dumps({"phase": self._phase, "decision": decision})}

    def load_state_dict(self, state: dict | Sequence[dict]) -> None:
        """As `Hook.load_state_dict`, for a state saved with "auto". A collective: call it on every
        rank. Continues with the saved choice, and checks as usual whether it still pays."""
        self._check_own()
        check_state_given(state, several=True)
        first = state if isinstance(state, dict) else next(iter(state), {})
        phase, decision = decisions.choice_of(first)
        hook = None
        if decision is not None and decision.spec is not None or phase == "leaving":
            hook = self._connector.hook_of(first["spec"], self._history)
            try:
                hook.load_state_dict(state)
            except BaseException:
                hook.close()
                raise
        if self._hook is not None:
            self._hook.close()
        self._use(hook)
        self._decision = decision
        self._measuring.end()
        self._enter(phase)

    def _check_own(self) -> None:
        if isinstance(self._session, DetachedSession):
            raise self._session.error()

    def close(self) -> None:
        """Says goodbye to the other ranks; idempotent. Happens at exit in any case. A native
        all-reduce continues to work, as in plain DDP; with a codec the next step is an error."""
        super().close()
        self._end()

    def leave(self) -> None:
        """At exit: `close`, as `Hook.leave`."""
        super().leave()
        self._end()

    def _end(self) -> None:
        if self._hook is not None:
            self._hook.close()
        self._native.close()


def _answer(decision: Decision | None) -> dict:
    return {} if decision is None else decision.as_dict()


def _before_forward(hook: AutoHook, ddp_model: DistributedDataParallel) -> None:
    if torch.is_grad_enabled() and not isinstance(hook._session, DetachedSession):
        check_failed(hook, ddp_model)
        if hook._is_timed:
            hook._clock.begin()


def _after_forward(hook: AutoHook, ddp_model: DistributedDataParallel, inputs, outputs) -> None:
    if not torch.is_grad_enabled():
        return
    hook._check_own()
    if hook.closed or not ddp_model.require_backward_grad_sync:
        return
    try:
        if hook._steps >= hook._due:
            hook._turn()
        if hook._hook is None:
            hook._connector.parameters.check(ddp_model)
    except Exception as cause:
        hook._give_up(cause)
        raise
    if hook._hook is not None:
        hook._hook.after_forward(ddp_model, inputs, outputs)
