"""The communication hook. (No `from __future__ import annotations` here: DDP inspects the hook's
signature and refuses annotations that are strings.)"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire import _core
from deltawire.errors import DeltawireError, make_error
from deltawire.history import History
from deltawire.torch.core import arguments
from deltawire.torch.core.checkpoint import RESIZE_ADVICE, in_order_of_ranks, kept_by, residuals_of
from deltawire.torch.core.detached_session import DetachedSession
from deltawire.torch.core.loss_scale import LossScale
from deltawire.torch.core.module_parameters import row_major_shape
from deltawire.torch.core.significance import SignificanceSource
from deltawire.torch.ddp.bucket import BackwardEnd, UnderWay
from deltawire.torch.ddp.parameters import DDPParameters
from deltawire.torch.ddp.sparse_gradient import SparseGradient
from deltawire.torch.ddp.staging import Staging
from deltawire.torch.metrics.explanation import Explanation
from deltawire.torch.metrics.scalars import profiled, profiled_until
from deltawire.torch.participant import Participant

_AFTER_CLOSE = (
    "DDP keeps its hook, so wrap the module in a new DistributedDataParallel to go on, and "
    "register that for compressed exchange"
)


class Hook(Participant):
    """A rank's compressed exchange; made by `register`.

    What fails, on whichever rank, is raised by the backward pass under way, as a DeltawireError
    (it is a RuntimeError), which `last_error` has, too; gradients are of no use then. So does the
    next forward pass. Where DDP calls the hook outside of a backward pass, in join(), and in the
    first step of a static graph torch makes a plain RuntimeError of it, with a traceback in its
    text. The hook can't be used any more: close it and go on without, or start again.

    A forward pass whose gradients DDP would exchange in part only raises DeltawireError ("State")
    that names the parameter, and ends the exchange on every rank: one that was thawed, replaced,
    added or given another dtype since DDP was made, or frozen without find_unused_parameters=True.

    The model may be deep-copied and pickled, and the hook with it. The copy has no session, and its
    forward pass with gradients raises ("State") until it is registered itself.

    Thread rule: DDP calls `deltawire_hook` from the thread of backward; `state_dict`,
    `load_state_dict` and `close` belong to the training loop, between steps; everything else may
    be called from any thread.
    """

    _kind = "hook"
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
        timeout_ms: int,
        source: SignificanceSource | None = None,
        loss_scale: LossScale | None = None,
        history: History | None = None,
        **of_participant: Any,
    ) -> None:
        """`of_participant`: group and summary_every, as for every participant."""
        super().__init__(session, place, history, **of_participant)
        self._parameters = parameters  # names: residuals survive every rebuild of buckets
        self._source = source  # of what the optimizer can see; None: nothing may be cut by it
        self._loss_scale = loss_scale or LossScale(None)
        self._scale = 1.0  # of the step under way
        self._step = 0
        self._next_bucket = 0
        self._timeout_ms = timeout_ms
        self._staging = Staging(timeout_ms / 1e3, parameters.gradient_bytes if parameters else 0)
        self._end = BackwardEnd()
        self._layouts: dict[int, tuple] = {}  # by bucket: see `_dense`
        # Not for torch.compile, which would trace it parameter by parameter, for seconds. A
        # function, because a bound method would keep the hook of a dropped model alive.
        self._check_forward = torch.compiler.disable(_check_forward)
        self._check_failed = torch.compiler.disable(check_failed)

    def __reduce__(self):
        """For copy and pickle: never two owners of one session."""
        return _copied_hook, (self.spec, self.rank, self.world_size)

    def before_forward(self, ddp_model: DistributedDataParallel, _) -> None:
        """A forward pre-hook of the DDP model: raises `last_error` after a failure, on every
        rank."""
        self._check_failed(self, ddp_model)
        if self._staging.stages(ddp_model) and _exchanges(ddp_model):
            self._loss_scale.look_ahead()

    def after_forward(self, ddp_model: DistributedDataParallel, _, __) -> None:
        """A forward hook of the DDP model: where its gradients would not be exchanged, or in part
        only, raises DeltawireError ("State") and tells the other ranks. Not before the forward
        pass, in which DDP has collectives: a rank that leaves it out keeps the others waiting."""
        self._check_forward(self, ddp_model)

    def deltawire_hook(
        self, state: object, bucket: dist.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        """DDP's communication hook: the mean of the bucket over all ranks, in place, as a Future.

        Never raises and never returns None, whatever happens: DDP survives neither.
        """
        under_way = UnderWay(self._staging, bucket)
        self._end.add(under_way)
        with profiled_until(under_way.exchanged, f"deltawire::exchange bucket {under_way.index}"):
            try:
                with profiled("deltawire::submit"):
                    self._submit(bucket, under_way)
            except Exception as cause:
                self._fail(cause, under_way)
        return under_way.exchanged.then(under_way.mean)

    def _fail(self, cause: Exception, under_way: UnderWay) -> None:
        self._give_up(cause)
        under_way.end(self.last_error)

    def _submit(self, bucket: dist.GradBucket, under_way: UnderWay) -> None:
        """Hands the bucket to the communication thread, which ends it."""
        arguments.check_tensor("a bucket of gradients", under_way.buffer)
        index, last = under_way.index, under_way.last
        if index != self._next_bucket:
            raise make_error(
                "State",
                f"bucket {index} came where {self._next_bucket} was due: a backward pass "
                "was cut short; register a new DDP model",
                self.rank,
            )
        if isinstance(self._session, DetachedSession):
            raise self._session.error()
        if self._session.closed:
            raise make_error("State", f"the hook is closed; {_AFTER_CLOSE}", self.rank)
        if index == 0:
            self._scale = self._loss_scale.now()
            self._log_summary()
        step = _core.Step(self._step, index, last, self._scale, timed=True)
        self._next_bucket = 0 if last else index + 1
        self._step += last
        self._exchange(bucket, under_way, step)

    def _exchange(self, bucket: dist.GradBucket, under_way: UnderWay, step: _core.Step) -> None:
        names = tuple(map(self._parameters.name_of, under_way.parameters))
        buffer, index, last = under_way.buffer, under_way.index, under_way.last
        source, memory = self._source, None
        if buffer.is_sparse:
            under_way.sparse = SparseGradient(names[0], buffer)
            source = None  # pairs have no significance
        tensors = [] if buffer.is_sparse else self._dense(bucket, under_way, names)
        if source is not None:
            whole = list(zip(names, under_way.parameters, strict=True))
            memory, addresses = source.of_tensors(index, whole)
            tensors = [(*at, address) for at, address in zip(tensors, addresses, strict=True)]
        history = self._history
        history.ready(names)

        def complete(error, report):
            try:
                if source is not None:
                    source.give_back(index, memory)
                error = history.end(error, report, last)
                if error is None:
                    under_way.store()
            except Exception as cause:
                self._give_up(cause)
                error = self.last_error
            finally:  # a Future that nobody completes is a wait without a deadline
                under_way.end(error)

        def submit(host):
            at = [under_way.sparse.at] if under_way.sparse else _at(host.data_ptr(), tensors)
            self._session.submit(at, step, self._timeout_ms, complete)

        failed = functools.partial(self._fail, under_way=under_way)
        self._staging.load(index, buffer, submit, failed)

    def _dense(
        self, bucket: dist.GradBucket, under_way: UnderWay, names: tuple[str, ...]
    ) -> list[tuple]:
        """(name, where in the buffer, shape, dtype) of each of the bucket's gradients. DDP lays a
        gradient out as its parameter is, whatever the view in the bucket claims. What is in a
        bucket changes when DDP rebuilds its buckets, where things are in it never does."""
        found = self._layouts.get(under_way.index)
        if found is None or found[0] != names:
            first, dtype = under_way.buffer.data_ptr(), arguments.dtype_name(under_way.buffer.dtype)
            whole = zip(names, under_way.parameters, bucket.gradients(), strict=True)
            laid_out = [
                (name, gradient.data_ptr() - first, row_major_shape(parameter), dtype)
                for name, parameter, gradient in whole
            ]
            self._layouts[under_way.index] = found = (names, laid_out)
        return found[1]

    def close(self) -> None:
        """Joins the communication thread and says goodbye to the other ranks; idempotent.

        Done at exit in any case. Buckets still in flight are aborted on every rank.
        """
        super().close()
        self._staging.close()

    def go_to_step(self, step: int) -> None:
        """The next step has this number, on every rank alike; rules may name other codecs from it
        on. Call between steps."""
        self._step = step
        self._go_on_after(step)

    def explain(self) -> Explanation:
        """What each tensor of the model gets in the next step, and what it took in the last: a
        table as text. Call between steps; DeltawireError ("State") within one.
        """
        tensors = self._parameters.tensors if self._parameters else []  # of a copy: it has none
        return self._explain(tensors, self._step)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep of this rank; every rank saves its own. Call between steps,
        or after a failure: then it is as after the last step that counts, and with revert="fold"
        has the failed step's gradients besides.

        The hook is a `Stateful` of torch.distributed.checkpoint: save({"hook": hook}) keeps what
        all ranks have. `residuals` has a uint8 tensor by rank; the rest says where it belongs.
        """
        self._staging.settle()  # after a failure DDP raises before it has looked at all buckets
        state = self._state(steps=self._steps_that_count())
        state["residuals"] = kept_by(state.pop("rank"), state["residuals"])
        return state

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Puts back what `state_dict` gave, on every rank or on none. Call between steps.

        Args:
            state: what this rank has saved, or a list of what all ranks have: the same one on every
                rank (see `saved_states`). With a list the number of ranks may be another than
                then. What waits to be sent keeps its sum in terms of the mean, up to one rounding
                of float32 a value: what ranks kept of their own gradients is averaged over the
                ranks that a new one takes the place of, what owners kept of means goes to their new
                owners.

        Raises InvalidArgumentError (a ValueError) where a state is of another rank, world size,
        spec or version, or one is missing; DeltawireError where its bytes are damaged or it is of
        another model ("Mismatch"). Then nothing is changed.
        """
        if isinstance(state, dict):
            own = self._checked(state, self.rank)
            self._load_residuals(own)
        else:
            states = in_order_of_ranks(state)
            own = {}
            residuals = []
            for rank, each in enumerate(states):
                own = self._checked({**each, "world_size": self.world_size}, rank)
                residuals.append(own["residuals"])
            # A copy has no tensors.
            self._load_resized(residuals, self._parameters.tensors if self._parameters else [])
        self.go_to_step(own["steps"])

    def _checked(self, state: dict, rank: int) -> dict:
        """The state as the residuals' of one rank."""
        flat = {**state, "rank": self.rank}
        fits = "residuals" in state and state.get("world_size") == self.world_size
        if fits:
            flat["residuals"] = residuals_of(state, rank)
        self._check_state(flat, ("steps",))
        return flat


class AllRanks:
    """A hook as an object with `state_dict` and `load_state_dict` whose state is that of all ranks:
    for trainers that write what rank 0 has (Accelerate, Lightning), as they ask all ranks for it::

        accelerator.register_for_checkpointing(deltawire.torch.AllRanks(hook))

    Every rank holds the residuals of all while the state is alive: the model's size for each. For
    torch.distributed.checkpoint, where each rank writes its own, give it the hook itself.

    Thread rule: as the hook's; both between steps.
    """

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def state_dict(self) -> dict:
        """`ranks`: a list of `Hook.state_dict()` by rank. A collective on `hook.group`."""
        states: list = [None] * self._hook.world_size
        dist.all_gather_object(states, self._hook.state_dict(), group=self._hook.group)
        return {"ranks": states}

    def load_state_dict(self, state: dict) -> None:
        """Puts back what `state_dict` gave, the same on every rank; of other numbers of ranks, too.
        Raises as `Hook.load_state_dict` with a list."""
        self._hook.load_state_dict(state["ranks"])


def _at(address: int, tensors: list[tuple]) -> list[tuple]:
    """Tensors of a bucket whose memory begins at this address."""
    return [(name, address + offset, *rest) for name, offset, *rest in tensors]


def _exchanges(ddp_model: DistributedDataParallel) -> bool:
    """What DDP itself looks at before it readies its reducer."""
    return torch.is_grad_enabled() and ddp_model.require_backward_grad_sync


def check_failed(hook: Participant, ddp_model: DistributedDataParallel) -> None:
    """Before a forward pass whose gradients are to be exchanged."""
    if hook.last_error is not None and not hook.closed and _exchanges(ddp_model):
        raise hook.last_error


def _check_forward(hook: Hook, ddp_model: DistributedDataParallel) -> None:
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


def _copied_hook(spec: str, rank: int, world_size: int) -> Hook:
    """What a copied or unpickled hook is."""
    return Hook(DetachedSession(spec), None, (rank, world_size), 0)
