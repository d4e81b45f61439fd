"""DDP's communication hook. (No `from __future__ import annotations` here: DDP inspects the hook's
signature and refuses annotations that are strings.)"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire import _core
from deltawire.arguments import check_count
from deltawire.errors import DeltawireError, make_error
from deltawire.session.history import History
from deltawire.torch.core import arguments
from deltawire.torch.core.backward_pass import cut_short, in_backward
from deltawire.torch.core.checkpoint import RESIZE_ADVICE, in_order_of_ranks, kept_by, kept_of
from deltawire.torch.core.line_energies import Beside
from deltawire.torch.core.loss_scale import LossScale
from deltawire.torch.core.module_parameters import row_major_shape
from deltawire.torch.core.optimizer_rules.momentum_choice import OptimizerRules
from deltawire.torch.core.replica_check import ReplicaCheck
from deltawire.torch.core.settings import OptimizerUses, StepRules
from deltawire.torch.core.weak import weakly
from deltawire.torch.ddp.bucket import BackwardEnd, PendingBucket
from deltawire.torch.ddp.parameters import DDPParameters
from deltawire.torch.ddp.sparse_gradient import SparseGradient
from deltawire.torch.ddp.unexchanged import Unexchanged
from deltawire.torch.gradient_hook import GradientHook
from deltawire.torch.metrics.explanation import Explanation
from deltawire.torch.metrics.scalars import profiled
from deltawire.torch.participant import DetachedSession, Participant

_AFTER_CLOSE = (
    "DDP keeps its hook, so wrap the module in a new DistributedDataParallel to go on, drop this "
    "one, which may still take gradients, and register the new one for compressed exchange"
)


class Hook(GradientHook):
    """A rank's compressed exchange; made by `register`.

    A failure on any rank raises a DeltawireError (a RuntimeError) from the backward pass under way,
    on every rank, and from the next forward pass; `last_error` has it, too. The gradients are
    useless then. Where DDP calls the hook outside of a backward pass (in join()), and in the first
    step of a static graph, torch turns the error into a plain RuntimeError with a traceback in its
    text. The hook can't be used any more: close it and continue without, or start again.

    A forward pass raises DeltawireError ("State"), naming the parameter, and ends the exchange on
    every rank if DDP would exchange only some of the gradients: a parameter was unfrozen, replaced,
    added or converted since DDP was made, or frozen without find_unused_parameters=True.

    The model may be deep-copied and pickled together with its hook. The copy has no session: its
    forward pass with gradients raises ("State") until the copy is registered.

    Attributes:
        optimizer_rules: how the optimizer steps some parameters.

    Thread rule: DDP calls `deltawire_hook` from the thread of backward; `state_dict`,
    `load_state_dict` and `close` belong to the training loop, between steps; everything else may
    be called from any thread.
    """

    _nonfinite_advice = (
        'with register(..., scaler=the GradScaler) or nonfinite="pass" such a step comes out as '
        "NaN on every rank, for you to skip, and leaves no trace"
    )
    _resize_advice = RESIZE_ADVICE

    def __init__(
        self,
        session: _core.Session | DetachedSession,
        parameters: DDPParameters | None,
        place: tuple[int, int],
        rules: StepRules,
        history: History | None = None,
        notices_unexchanged: bool = False,
        **of_participant: Any,
    ) -> None:
        """`of_participant`: group, summary_every, encryption, carrier, as for every participant."""
        gradient_bytes = parameters.gradient_bytes if parameters else 0
        super().__init__(session, place, rules, gradient_bytes, history, **of_participant)
        self._parameters = parameters  # names: residuals survive every rebuild of buckets
        self._unexchanged: Unexchanged | None = None
        if notices_unexchanged:
            self._unexchanged = Unexchanged(parameters, self.rank, weakly(self._give_up))
        self._next_bucket = 0
        self._end = BackwardEnd()
        self._layouts: dict[int, tuple] = {}  # by bucket: see `_dense`
        # Not for torch.compile, which would trace it parameter by parameter, for seconds. A
        # function, because a bound method would keep the hook of a dropped model alive.
        self._check_forward = torch.compiler.disable(_check_forward)
        self._check_failed = torch.compiler.disable(_check_pass)

    def __reduce__(self):
        """For copy and pickle: a session never has two owners."""
        return _copied_hook, (self.spec, self.rank, self.world_size)

    def before_forward(self, ddp_model: DistributedDataParallel, _) -> None:
        """A forward pre-hook of the DDP model. Raises `last_error` after a failure, on every
        rank; a backward pass that was cut short is one."""
        self._check_failed(self, ddp_model)
        if self._staging.stages(ddp_model) and _exchanges(ddp_model):
            self._rules.loss_scale.look_ahead()

    def after_forward(self, ddp_model: DistributedDataParallel, _, outputs: object) -> None:
        """A forward hook of the DDP model. Raises DeltawireError ("State"), and tells the other
        ranks, if gradients would be exchanged in part or not at all. It runs after the forward pass
        because that has collectives of DDP: a rank that skipped it would keep the others waiting.
        """
        self._check_forward(self, ddp_model, outputs)

    def deltawire_hook(
        self, state: object, bucket: dist.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        """DDP's communication hook: a Future of the bucket's mean over all ranks, in place.

        Never raises and never returns None: DDP survives neither.
        """
        if self._unexchanged is not None:
            self._unexchanged.buckets += 1
        pending = PendingBucket(self._staging, bucket)
        self._end.add(pending)
        with profiled(f"deltawire::exchange bucket {pending.index}", pending.exchanged):
            try:
                with profiled("deltawire::submit"):
                    self._submit(bucket, pending)
            except Exception as cause:
                self._give_up(cause)
                pending.end(self.last_error)
        return pending.exchanged.then(pending.mean)

    def _submit(self, bucket: dist.GradBucket, pending: PendingBucket) -> None:
        """Hands the bucket to the communication thread, which completes it."""
        arguments.check_tensor("a bucket of gradients", pending.buffer)
        index, last = pending.index, pending.last
        if index != self._next_bucket:
            raise cut_short(self.rank, self._step)
        if isinstance(self._session, DetachedSession):
            raise self._session.error()
        if self._session.closed:
            raise make_error("State", f"the hook is closed; {_AFTER_CLOSE}", self.rank)
        if index == 0:
            self._begin_step()
        step = self._bucket_of_step(index, last)
        self._next_bucket = 0 if last else index + 1
        self._step += last
        self._exchange(bucket, pending, step)

    def _compared(self, check: ReplicaCheck) -> int:
        if self._parameters.in_join:  # those whose data have ended get the weights at the end
            return check.agreed(self._step, ())
        if check.is_due(self._step):
            self._parameters.check_accumulators()
        return check.agreed(self._step, self._parameters.named())

    def _give_up_cut_step(self) -> None:
        """Between passes: ends the exchange if an exception, a user's for example, has ended the
        last backward pass before all buckets came."""
        if self._next_bucket and not (self.last_error or self.closed or in_backward()):
            self._give_up(cut_short(self.rank, self._step))

    def _exchange(self, bucket: dist.GradBucket, pending: PendingBucket, step: _core.Step) -> None:
        names = tuple(map(self._parameters.name_of, pending.parameters))
        buffer, index = pending.buffer, pending.index
        source, over = self._rules.uses.source, None
        if buffer.is_sparse:
            self._staging.wait([buffer.device])  # it is read here
            pending.sparse = SparseGradient(names[0], buffer)
            source = None  # pairs have no significance
        tensors = [] if buffer.is_sparse else self._dense(bucket, pending, names)
        if source is not None:
            whole = list(zip(names, pending.parameters, strict=True))
            addresses, over = source.of_bucket(self._staging, buffer, index, whole)
            tensors = [(*at, address) for at, address in zip(tensors, addresses, strict=True)]
        beside = self._beside(pending, tensors)
        self._history.ready(names)

        def at(host: torch.Tensor) -> list[tuple]:
            if pending.sparse:
                return [pending.sparse.at]
            return [(name, host.data_ptr() + offset, *rest) for name, offset, *rest in tensors]

        more = {"store": pending.store, "over": over, "beside": beside}
        self._hand_over(index, step, buffer, at, lambda error, _: pending.end(error), **more)

    def _beside(self, pending: PendingBucket, tensors: list[tuple]) -> Beside | None:
        """What travels beside a bucket; see `LineEnergies`."""
        energies = self._rules.uses.energies
        if energies is None or pending.sparse:
            return None
        buffer, width = pending.buffer, pending.buffer.element_size()
        gradients = [
            (each, buffer[offset // width : (offset + size) // width], None)
            for each, (_, offset, size, *_) in zip(pending.parameters, tensors, strict=True)
        ]
        return energies.of_bucket(self._staging, buffer, pending.index, gradients)

    def _dense(
        self, bucket: dist.GradBucket, pending: PendingBucket, names: tuple[str, ...]
    ) -> list[tuple]:
        """(name, offset in the buffer, bytes, shape, dtype) of each gradient of the bucket. DDP
        lays a gradient out like its parameter, whatever the strides of the bucket's view say. What
        a bucket contains changes when DDP rebuilds its buckets; offsets in it never do."""
        found = self._layouts.get(pending.index)
        if found is None or found[0] != names:
            first, dtype = bucket.buffer().data_ptr(), arguments.dtype_name(pending.buffer.dtype)
            whole = zip(names, pending.parameters, bucket.gradients(), strict=True)
            laid_out = [
                (
                    name,
                    gradient.data_ptr() - first,
                    gradient.nbytes,
                    row_major_shape(parameter),
                    dtype,
                )
                for name, parameter, gradient in whole
            ]
            self._layouts[pending.index] = found = (names, laid_out)
        return found[1]

    def go_to_step(self, step: int) -> None:
        """Sets the number of the next step, equal on every rank; rules may choose other codecs from
        it on. Call between steps. InvalidArgumentError for anything but a whole number, 0 or
        more."""
        step = check_count("step", step)
        self._step = step
        self._go_on_after(step)

    def explain(self) -> Explanation:
        """The codec of each tensor in the next step and the bytes it took in the last, as a
        printable table. Call between steps; DeltawireError ("State") within one.
        """
        tensors = self._parameters.tensors if self._parameters else []  # a copy has no tensors
        return self._explained(tensors)

    def state_dict(self) -> dict[str, Any]:
        """This rank's state for a checkpoint; every rank saves its own. Call between steps, or
        after a failure: then it is the state after the last committed step, plus the failed step's
        gradients with revert="fold". An exception in the backward pass is a failure, too: if it
        came in the middle of a step, this call ends the exchange on every rank.

        The hook is a `Stateful` of torch.distributed.checkpoint: save({"hook": hook}) saves the
        states of all ranks. `residuals` has a uint8 tensor by rank; the rest identifies the job.
        """
        self._give_up_cut_step()
        self._staging.settle()  # after a failure DDP raises before it has looked at all buckets
        state = self._state(steps=self._steps_that_count())
        rank = state.pop("rank")
        state["residuals"] = kept_by(rank, state["residuals"])
        return state

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Restores what `state_dict` returned. Call it on every rank, between steps: if one goes on
        from another step than the others, the next one fails on all ("Mismatch").

        Args:
            state: what this rank saved, or a list of what all ranks saved, the same list on every
                rank (see `saved_states`). With a list the number of ranks may have changed. The
                effect of all residuals on the mean stays the same, up to one float32 rounding a
                value: residuals of gradients are averaged over the old ranks that a new rank
                replaces, residuals of means go to the means' new owners.

        Raises InvalidArgumentError (a ValueError) for a state of another rank, world size, spec or
        version, or if one is missing; DeltawireError for damaged bytes or another model
        ("Mismatch"). Nothing is changed then.
        """
        if isinstance(state, dict):
            own = self._checked(state, self.rank)
            self._load_residuals(own)
        else:
            own, states = {}, in_order_of_ranks(state)
            residuals = []
            for rank, each in enumerate(states):
                own = self._checked({**each, "world_size": self.world_size}, rank)
                residuals.append(own["residuals"])
            # A copy has no tensors.
            self._load_resized(residuals, self._parameters.tensors if self._parameters else [])
        self.go_to_step(own["steps"])

    def _checked(self, state: dict, rank: int) -> dict:
        """One rank's state, checked, with the residuals unwrapped."""
        flat = {**state, "rank": self.rank}
        fits = "residuals" in state and state.get("world_size") == self.world_size
        if fits:
            otherwise = " or a list of what all ranks have"
            flat["residuals"] = kept_of(state, rank, "residuals", otherwise)
        self._check_state(flat, ("steps",))
        return flat


def _exchanges(ddp_model: DistributedDataParallel) -> bool:
    """Whether DDP exchanges the gradients of this pass: the check that it makes itself."""
    return torch.is_grad_enabled() and ddp_model.require_backward_grad_sync


def check_failed(hook: Participant, ddp_model: DistributedDataParallel) -> None:
    """Raises the hook's error before a forward pass whose gradients would be exchanged."""
    if hook.last_error is not None and not hook.closed and _exchanges(ddp_model):
        raise hook.last_error


def _check_pass(hook: Hook, ddp_model: DistributedDataParallel) -> None:
    if _exchanges(ddp_model):
        hook._give_up_cut_step()
    check_failed(hook, ddp_model)


def _check_forward(hook: Hook, ddp_model: DistributedDataParallel, outputs: object) -> None:
    if not _exchanges(ddp_model):
        return
    hook._end.looks_first = ddp_model.find_unused_parameters or ddp_model.static_graph
    if isinstance(hook._session, DetachedSession):
        raise hook._session.error()
    if hook.closed:
        return
    try:
        hook._parameters.check(ddp_model)
    except DeltawireError as cause:
        hook._give_up(cause)
        raise
    if hook._unexchanged is not None:
        hook._unexchanged.watch(outputs)


def _copied_hook(spec: str, rank: int, world_size: int) -> Hook:
    """The hook of a copied or unpickled model."""
    rules = StepRules(0, LossScale(None), OptimizerUses(OptimizerRules([])))
    return Hook(DetachedSession(spec), None, (rank, world_size), rules)
