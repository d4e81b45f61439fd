"""The communication hook. (No `from __future__ import annotations` here: DDP inspects the hook's
signature and refuses annotations that are strings.)"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire import _core
from deltawire.errors import DeltawireError, make_error
from deltawire.torch.checkpoint import in_order_of_ranks, kept_by, residuals_of
from deltawire.torch.copied import CopiedSession
from deltawire.torch.exchanged import Exchanged, row_major_shape
from deltawire.torch.explanation import Explanation
from deltawire.torch.loss_scale import LossScale
from deltawire.torch.participant import Participant
from deltawire.torch.significance import SignificanceSource


class Hook(Participant):
    """A rank's compressed exchange; made by `register`.

    After an error the training loop sees a RuntimeError with the message from `backward()`, and
    `last_error` has it typed; the hook can't be used any more. Close it and go on without, or
    start again.

    A forward pass whose gradients DDP would exchange in part only raises DeltawireError ("State")
    that names the parameter, and ends the exchange on every rank: one that was thawed or replaced
    since DDP was made, or frozen without find_unused_parameters=True.

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

    _resize_advice = (
        "give load_state_dict a list of the states of all ranks that saved; "
        "deltawire.torch.saved_states(checkpoint) reads them from a torch.distributed.checkpoint"
    )

    def __init__(
        self,
        session: _core.Session | CopiedSession,
        exchanged: Exchanged | None,
        place: tuple[int, int],
        timeout_ms: int,
        source: SignificanceSource | None = None,
        loss_scale: LossScale | None = None,
    ) -> None:
        super().__init__(session, place)
        self._exchanged = exchanged  # names: residuals survive every rebuild of buckets
        self._source = source  # of what the optimizer can see; None: nothing may be cut by it
        self._loss_scale = loss_scale or LossScale(None, session.spec)
        self._scale = 1.0  # of the step under way
        self._step = 0
        self._next_bucket = 0
        self._timeout_ms = timeout_ms
        # Not for torch.compile, which would trace it parameter by parameter, for seconds. A
        # function, because a bound method would keep the hook of a dropped model alive.
        self._check_forward = torch.compiler.disable(_check_forward)

    def __reduce__(self):
        """For copy and pickle: never two owners of one session."""
        return _copied_hook, (self.spec, self.rank, self.world_size)

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
        exchanged = torch.futures.Future()
        buffer = bucket.buffer()
        try:
            self._submit(bucket, buffer, exchanged)
        except Exception as cause:
            self._give_up(cause)
            exchanged.set_result(self.last_error)

        def check(future):
            error = future.value()
            if error is not None:
                raise RuntimeError(f"deltawire: {error}")
            return buffer  # the closure also keeps its memory alive until the exchange is over

        return exchanged.then(check)

    def _submit(self, bucket, buffer, exchanged) -> None:
        """Hands the bucket to the communication thread, which sets `exchanged` to an error or
        None."""
        if buffer.is_sparse or buffer.dtype != torch.float32 or buffer.device.type != "cpu":
            kind = f"{'sparse ' if buffer.is_sparse else ''}{buffer.dtype} on {buffer.device}"
            raise make_error(
                "UnsupportedDType",
                f"a bucket of gradients is {kind}; deltawire exchanges dense float32 on the CPU",
                self.rank,
            )
        if bucket.index() != self._next_bucket:
            raise make_error(
                "State",
                f"bucket {bucket.index()} came where {self._next_bucket} was due: a backward pass "
                "was cut short; register a new DDP model",
                self.rank,
            )
        if isinstance(self._session, CopiedSession):
            raise self._session.error()
        last = bucket.is_last()
        if bucket.index() == 0:
            self._scale = self._loss_scale.now()
        step = _core.Step(self._step, bucket.index(), last, self._scale)
        self._next_bucket = 0 if last else bucket.index() + 1
        self._step += last
        # DDP lays a gradient out as its parameter is, whatever the view in the bucket claims.
        tensors = [
            (self._exchanged.name_of(parameter), gradient.data_ptr(), row_major_shape(parameter))
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True)
        ]
        source, index, memory = self._source, bucket.index(), None
        if source is not None:
            memory, addresses = source.of_bucket(bucket, self._exchanged.names)
            tensors = [(*at, address) for at, address in zip(tensors, addresses, strict=True)]
        history = self._history

        def complete(error, report):
            try:
                if source is not None:
                    source.give_back(index, memory)
                error = history.end(error, report, last)
            finally:  # a Future that nobody completes is a wait without a deadline
                exchanged.set_result(error)

        self._session.submit(tensors, step, self._timeout_ms, complete)

    def explain(self) -> Explanation:
        """What each tensor of the model gets in the next step, and what it took in the last: a
        table as text. Call between steps; DeltawireError ("State") within one.
        """
        tensors = self._exchanged.tensors if self._exchanged else []  # of a copy: it has none
        return self._explain(tensors, self._step)

    def state_dict(self) -> dict:
        """What a checkpoint must keep of this rank; every rank saves its own. Call between steps.

        The hook is a `Stateful` of torch.distributed.checkpoint: save({"hook": hook}) keeps what
        all ranks have. `residuals` has a uint8 tensor by rank; the rest says where it belongs.
        """
        state = self._state(steps=self._step)
        state["residuals"] = kept_by(state.pop("rank"), state["residuals"])
        return state

    def load_state_dict(self, state: dict | Sequence[dict]) -> None:
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
                residuals.append(own["residuals"].cpu().contiguous().numpy())
            tensors = self._exchanged.tensors if self._exchanged else []  # of a copy: it has none
            self._session.load_resized(residuals, tensors, (self.rank, self.world_size))
        self._step = own["steps"]

    def _checked(self, state: dict, rank: int) -> dict:
        """The state as the residuals' of one rank."""
        flat = {**state, "rank": self.rank}
        fits = "residuals" in state and state.get("world_size") == self.world_size
        if fits:
            flat["residuals"] = residuals_of(state, rank)
        self._check_state(flat, ("steps",))
        return flat


def _check_forward(hook: Hook, ddp_model: DistributedDataParallel) -> None:
    # What DDP itself looks at before it readies its reducer.
    if not torch.is_grad_enabled() or not ddp_model.require_backward_grad_sync:
        return
    if isinstance(hook._session, CopiedSession):
        raise hook._session.error()
    if hook.closed:
        return
    try:
        hook._exchanged.check(ddp_model)
    except DeltawireError as cause:
        hook._give_up(cause)
        raise


def _copied_hook(spec: str, rank: int, world_size: int) -> Hook:
    """What a copied or unpickled hook is."""
    return Hook(CopiedSession(spec), None, (rank, world_size), 0)
