"""The base of hooks that exchange gradients."""

import weakref
from collections.abc import Callable
from typing import Any

import torch

from deltawire import _core
from deltawire.errors import DeltawireError
from deltawire.session.history import History
from deltawire.torch.core.device.staging import Staging
from deltawire.torch.core.line_energies import Beside
from deltawire.torch.core.replica_check import ReplicaCheck
from deltawire.torch.core.settings import StepRules
from deltawire.torch.core.weak import weakly
from deltawire.torch.metrics.explanation import Explanation
from deltawire.torch.participant import DetachedSession, Participant


class GradientHook(Participant):
    """The base of hooks that exchange gradients by buckets, during backward passes."""

    _kind = "hook"

    def __init__(
        self,
        session: _core.Session | DetachedSession,
        place: tuple[int, int],
        rules: StepRules,
        gradient_bytes: int,
        history: History | None = None,
        **of_participant: Any,
    ) -> None:
        """`gradient_bytes`: of a step. `of_participant`: group, summary_every, encryption, carrier,
        as for every participant."""
        super().__init__(session, place, history, **of_participant)
        self._rules, self.optimizer_rules = rules, rules.uses.rules
        self.optimizer_rules.recode = weakly(self._recode)
        self.optimizer_rules.attach()
        weakref.finalize(self, self.optimizer_rules.remove)
        seconds, parts = rules.timeout_ms / 1e3, rules.choice.parts
        self._staging = Staging(seconds, gradient_bytes, self._number, parts)
        self._step = 0
        self._scale, self._agreed = 1.0, 0  # of the step under way

    def _recode(self, spec: _core.Spec) -> None:
        self._session.recode(spec)

    def _begin_step(self) -> None:
        """Before its first bucket."""
        self._scale = self._rules.loss_scale.now()
        self.optimizer_rules.go_to(self._step)
        self._log_summary()
        self._agreed = 0 if self._rules.check is None else self._compared(self._rules.check)

    def _compared(self, check: ReplicaCheck) -> int:
        """What the ranks compare of the parameters in this step; 0: nothing."""
        raise NotImplementedError

    def _bucket_of_step(self, bucket: int, last: bool) -> _core.Step:
        return _core.Step(self._step, bucket, last, self._scale, self._agreed, timed=True)

    def _hand_over(
        self,
        bucket: int,
        step: _core.Step,
        memory: torch.Tensor | None,
        tensors: Callable[[torch.Tensor], list[tuple]],
        end: Callable[[DeltawireError | None, _core.Report | None], None],
        *,
        store: Callable[[], None],
        over: Callable[[], None] | None = None,
        beside: Beside | None = None,
    ) -> None:
        """Hands a bucket to the communication thread, as soon as it is loaded.

        Args:
            bucket, step: its number, and its place in training.
            memory: that has its gradients; None: there are none.
            tensors: those in the memory from which they are sent, as the core takes them.
            end: called in any case, on that thread or at once, with the first error or the report.
            store: moves the mean to where it belongs.
            over: called when the core has read the bucket.
            beside: what travels beside it.
        """
        history, check = self._history, self._rules.check

        def complete(error: DeltawireError | None, report: _core.Report | None) -> None:
            try:
                if over is not None:
                    over()
                if error is not None and check is not None:
                    error = check.explained(error)
                error = history.end(error, report, step.last)
                if error is None:
                    store()
                if beside is not None:
                    beside.end(error is None)
            except Exception as cause:
                self._give_up(cause)
                error = self.last_error
            finally:  # a Future that nobody completes is a wait without a deadline
                end(error, report)

        def submit(host: torch.Tensor | None) -> None:
            at = tensors(host) + (beside.tensors if beside is not None else [])
            self._session.submit(at, step, self._rules.timeout_ms, complete)

        def failed(cause: Exception) -> None:
            try:
                self._give_up(cause)
            finally:
                end(self.last_error, None)

        if memory is None:
            submit(None)
        else:
            self._staging.load(bucket, memory, submit, failed)

    def _explained(self, tensors: list[tuple]) -> Explanation:
        explained = self._explain(tensors, self._step, self._rules.choice.coded_on)
        return explained.with_fields(self.optimizer_rules.shown(self._step))

    def close(self) -> None:
        """Joins the communication thread and says goodbye to the other ranks; idempotent.

        Happens at exit in any case. Buckets in flight are aborted on every rank.
        """
        super().close()
        self._staging.close()
        self.optimizer_rules.remove()
