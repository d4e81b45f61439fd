"""The hook of `register(model, "auto")`, and how it explains its choice."""

# Without `from __future__ import annotations`: DDP refuses annotations that are strings.

import dataclasses
import json
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire import _core
from deltawire.errors import DeltawireError, check_state_given
from deltawire.session.base_session import STATE_VERSION
from deltawire.session.history import History, Metrics
from deltawire.torch.auto import decision as decisions
from deltawire.torch.auto.chooser import Chooser
from deltawire.torch.auto.connector import Connector
from deltawire.torch.auto.decision import Decision
from deltawire.torch.auto.measuring import Measuring
from deltawire.torch.auto.native import HALVED, NATIVE, NativeExchange
from deltawire.torch.core.checkpoint import kept_by
from deltawire.torch.core.device.parts import refuse_capture
from deltawire.torch.core.device.staging import Staging
from deltawire.torch.ddp.bucket import BackwardEnd, PendingBucket
from deltawire.torch.ddp.hook import Hook, check_failed
from deltawire.torch.metrics.explanation import Explanation, TensorRow
from deltawire.torch.participant import DetachedSession, Participant

_COLUMNS = ("codec", "loses", "bits", "ms a step", "x plain", "pays below")


class AutoMetrics(Metrics):
    """What `AutoHook.metrics` returns, for type checkers."""

    choice: str
    phase: str
    native_ms: float | None
    predicted_ms: float | None
    measured_ms: float | None
    plans: int


@dataclasses.dataclass(frozen=True)
class AutoExplanation:
    """str() of it is the plan's table, followed by the codec of each tensor.

    Attributes:
        tier: what codecs may lose.
        phase: see `AutoHook.metrics`.
        decision: None before the first plan.
        tensors: None unless a codec is in use.
    """

    tier: str
    phase: str
    decision: Decision | None
    tensors: Explanation | None

    def to_dict(self) -> dict:
        """For JSON."""
        return {
            "tier": self.tier,
            "phase": self.phase,
            "decision": self.decision.as_dict() if self.decision else None,
            "tensors": self.tensors.to_dict() if self.tensors else None,
        }

    def __str__(self) -> str:
        head = f"auto, tier {self.tier}, {self.phase}"
        if self.decision is None:
            return f"{head}: no plan was made yet"
        text = [f"{head}: {self.decision.reason}", "", *self._table(), *self._legend()]
        if self.tensors is not None:
            text += ["", str(self.tensors)]
        return "\n".join(text)

    def _table(self) -> list[str]:
        bits, plain = f"{self.decision.native_bits:.4g}", f"{self.decision.plain_ms:.2f}"
        lines = [_COLUMNS, ("native", "nothing", bits, plain, "1.00", "")]
        for row in self.decision.rows:
            below = row["gains_below"]
            lines.append(
                (
                    row["codec"] + (" *" if row["codec"] in self._chosen() else ""),
                    row["tier"],
                    f"{row['bits_per_value']:.2f}",
                    f"{row['predicted_ms']:.2f}",
                    f"{row['times_faster']:.2f}",
                    "never" if below is None else f"{8e-6 * below:,.4g} Mbit/s",
                )
            )
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]

    def _chosen(self) -> list[str | None]:
        """The chosen specs: one for all buckets, or one for each."""
        if not self.decision.by_bucket:
            return [self.decision.spec]
        pattern = _core.Spec(self.decision.spec).pattern
        return [f"{pattern}({codec})" for codec in self.decision.by_bucket]

    def _legend(self) -> list[str]:
        rate, latency = self.decision.link
        return [
            "",
            "link, by probes and steps: "
            f"{8e-6 * rate:,.4g} Mbit/s, {1e3 * latency:.3g} ms one way.",
            "ms a step: predicted, from its forward pass until the means are in place;",
            f"measured with the native all-reduce: {self.decision.native_ms:.2f} ms.",
            *(f"left out: {line}" for line in self.decision.refused),
        ]


class AutoHook(Participant):
    """An exchange that chooses its own codec: it uses the native all-reduce while it measures, then
    the codec of rank 0's plan or the native all-reduce; made by `register`.

    All ranks switch at the same step, before its first bucket, by collectives on the model's
    process group: all ranks exchange each step, also in join(), while forward passes are each
    rank's own. Before an exchange is replaced, steps of float32 send its residuals exactly: one, or
    as many as it takes until each tensor has had a gradient.

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
        probe: _core.Session | None = None,
    ) -> None:
        """Without a connector it is a copy, which asks to be registered. `probe` is a session for
        the first measurement."""
        history = History(place[0], self._nonfinite_advice)
        self._connector = connector
        self._chooser: Chooser | None = None
        native, group, every = DetachedSession(NATIVE), None, None
        if connector is not None:
            self._measuring = Measuring(connector, probe)
            self._chooser = Chooser(connector, self._measuring, history)
            group, every = connector.group, connector.settings.summary_every
            native = NativeExchange(self._measuring, group)
        super().__init__(native, place, history, group=group, summary_every=every)
        self._failure: DeltawireError | None = None  # of the talk before the step under way
        self._backward_end = BackwardEnd()
        self._check_forward = torch.compiler.disable(_after_forward)
        self._begin = torch.compiler.disable(_before_forward)

    def __reduce__(self):
        """For copy and pickle: a session never has two owners."""
        return AutoHook, ((self.rank, self.world_size),)

    @property
    def _hook(self) -> Hook | None:
        """The hook that compresses; None: the native all-reduce."""
        return self._chooser.hook if self._chooser is not None else None

    @property
    def _session(self) -> _core.Session | NativeExchange | DetachedSession:
        hook = self._hook
        return self._native if hook is None else hook._session

    @_session.setter
    def _session(self, session: NativeExchange | DetachedSession) -> None:
        """The session that it begins with, and has whenever nothing is compressed."""
        self._native = session

    # What DDP calls.

    def before_forward(self, ddp_model: DistributedDataParallel, _) -> None:
        """A forward pre-hook of the DDP model: starts the clock of a step. Raises `last_error`
        after a failure, on every rank."""
        self._begin(self, ddp_model)

    def after_forward(self, ddp_model: DistributedDataParallel, inputs, outputs) -> None:
        """A forward hook of the DDP model, as `Hook.after_forward`."""
        self._check_forward(self, ddp_model, inputs, outputs)

    def deltawire_hook(
        self, state: object, bucket: dist.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        """DDP's communication hook: a Future of the bucket's mean over all ranks, in place. Never
        raises and never returns None.

        Before the first bucket of some steps the ranks decide. If that fails, backward raises
        DeltawireError on every rank."""
        chooser = self._chooser
        if bucket.index() == 0:
            self._failure = self._talk()
        if self._failure is not None:
            return self._failed(bucket, self._failure)
        timed = chooser.is_timed
        hook = chooser.hook_for(bucket)
        if hook is not None:
            hook.summary_every = self.summary_every
            exchanged = hook.deltawire_hook(state, bucket)
        else:
            if self._hook is not None:
                self._hook.optimizer_rules.forget_means()
            exchanged = self._native.all_reduce(bucket, chooser.halves)
        return exchanged.then(chooser.over) if timed else exchanged

    def _talk(self) -> DeltawireError | None:
        """The ranks decide, if they are due; what has failed."""
        if self.closed or not self._chooser.is_due:
            return None
        try:
            if self.last_error is not None:  # there is nobody to talk to
                raise self.last_error
            self._chooser.turn()
        except Exception as cause:
            self._give_up(cause)
            return self.last_error
        return None

    def _failed(
        self, bucket: dist.GradBucket, error: DeltawireError
    ) -> torch.futures.Future[torch.Tensor]:
        """A bucket that is not exchanged: backward raises the error at its end."""
        pending = PendingBucket(Staging(0.0), bucket)
        self._backward_end.add(pending)
        pending.end(error)
        return pending.exchanged.then(pending.mean)

    def _give_up(self, cause: BaseException) -> None:
        super()._give_up(cause)
        self._measuring.end()

    # What the training loop asks.

    @property
    def spec(self) -> str:
        """The exchange in use, canonical; "native" for the native all-reduce, "native(bf16)" for
        that of halves."""
        chooser = self._chooser
        if chooser is None or not chooser.is_choice_used or chooser.decision is None:
            return NATIVE
        return chooser.decision.spec or NATIVE

    def metrics(self) -> AutoMetrics:
        """As `Hook.metrics`, of the compressed steps, plus

        - choice: `spec`; phase: measuring, trying (compressed and native steps alternate),
          compressing, native, leaving (last steps, which send the residuals);
        - native_ms, predicted_ms: a step from its forward pass until its means are in place, as
          measured with the native all-reduce and as predicted with the choice; None before the
          first plan;
        - measured_ms: the same, the median of the latest steps on this rank; None before them;
        - plans: the number of plans made.
        """
        chooser = self._chooser
        decision = chooser.decision if chooser is not None else None
        return {
            **super().metrics(),
            "choice": self.spec,
            "phase": chooser.phase if chooser is not None else "native",
            "native_ms": decision.native_ms if decision else None,
            "predicted_ms": decision.predicted_ms if decision else None,
            "measured_ms": chooser.median_ms() if chooser is not None else None,
            "plans": chooser.plans if chooser is not None else 0,
        }

    def explain(self) -> AutoExplanation:
        """The plan's table and, while a codec is in use, the codec of each tensor. Call between
        steps."""
        self._check_own()
        tensors = self._hook.explain() if self._hook is not None else None
        chooser = self._chooser
        return AutoExplanation(self._connector.tier, chooser.phase, chooser.decision, tensors)

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
            nothing = kept_by(self.rank, torch.empty(0, dtype=torch.uint8, device="cpu"))
            place = {"spec": NATIVE, "world_size": self.world_size, "steps": 0}
            state = {"version": STATE_VERSION, **place, "residuals": nothing}
        phase, decision = self._chooser.phase, self._chooser.decision
        choice = {"phase": phase, "decision": decision.as_dict() if decision else None}
        return {**state, "auto": json.dumps(choice)}

    def load_state_dict(self, state: dict | Sequence[dict]) -> None:
        """As `Hook.load_state_dict`, for a state saved with "auto". A collective: call it on every
        rank. Continues with the saved choice, and checks as usual whether it still pays."""
        self._check_own()
        check_state_given(state, several=True)
        first = state if isinstance(state, dict) else next(iter(state), {})
        phase, decision = decisions.choice_of(first)
        hook = None
        coded = decision is not None and decision.spec not in (None, HALVED)
        if coded or phase == "leaving":
            hook = self._connector.hook_of(first["spec"], self._history)
            try:
                hook.load_state_dict(state)
            except BaseException:
                hook.close()
                raise
        self._chooser.resume(hook, phase, decision)

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


def _before_forward(hook: AutoHook, ddp_model: DistributedDataParallel) -> None:
    if torch.is_grad_enabled() and not isinstance(hook._session, DetachedSession):
        check_failed(hook, ddp_model)
        if hook._hook is not None:
            hook._hook.before_forward(ddp_model, None)
        hook._chooser.begin()


def _after_forward(hook: AutoHook, ddp_model: DistributedDataParallel, inputs, outputs) -> None:
    if not torch.is_grad_enabled():
        return
    hook._check_own()
    if hook.closed or not ddp_model.require_backward_grad_sync:
        return
    try:
        refuse_capture(hook._connector.device)
        if hook._hook is None:
            hook._connector.parameters.check(ddp_model)
    except Exception as cause:
        hook._give_up(cause)
        raise
    if hook._hook is not None:
        hook._hook.after_forward(ddp_model, inputs, outputs)
