"""Local steps: each rank trains alone for a while, and then the ranks exchange what has changed.

SBC's algorithm 1 (Sattler, Wiedemann, Müller, Samek, "Sparse Binary Compression: Towards
Distributed Deep Learning with minimal Communication", 2019) for any reducer and any optimizer;
without compression it is federated averaging (McMahan et al., 2017) with equal shares.
"""

import threading
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.errors import DeltawireError, make_error
from deltawire.history import History
from deltawire.policy import Policy, spec_of
from deltawire.torch import arguments, bootstrap, wrappers
from deltawire.torch.explanation import Explanation
from deltawire.torch.momentum import DEFAULT_MOMENTUM, Momentum
from deltawire.torch.participant import Participant
from deltawire.torch.weights import Weights, broadcast_model, layout_digest, values_digest

_BUCKET_BYTES = 25 << 20

Steps = int | Callable[[int], int]


class LocalSteps(Participant):
    """A rank's local steps and rounds; made on every rank at the same time.

        trainer = deltawire.torch.LocalSteps(model, optimizer, steps=10, reducer="sbc:p=1%")
        for x, y in batches:
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            trainer.step()
        trainer.exchange()

    After `steps` local steps comes a round: what has changed in each parameter since the last round
    is averaged over the ranks through the reducer, which adds what it didn't send before (its
    residual), and `weights of the last round + mean` are the new weights, bit-equal on every rank.

    Args:
        model: the bare module, compiled or not; no DistributedDataParallel and nothing else that
            exchanges by itself. Its parameters that require gradients are float32 on the CPU; they
            are exchanged, and which they are stays as it is now. At the start all parameters and
            buffers become rank 0's, as with DDP. From then on buffers (statistics of BatchNorm) are
            each rank's own: a lossy mean could turn a variance negative. Frozen parameters stay
            what they are.
        optimizer: any torch.optim.Optimizer whose parameters are the model's.
        steps: local steps a round, 1 or more, or a function of the round's number (0, 1, ...) that
            gives them; equal on all ranks. See `steps` below.
        reducer: codec, e.g. "sbc:p=1%", or pattern and codec, "gather(sbc)", or a policy, as for
            `register`; equal on all ranks.
        min_elements: parameters below this many elements travel uncompressed; equal on all ranks.
        timeout: seconds that a bucket of a round may take, from when all have arrived, before the
            ranks give up and name the culprit; and that a rank may answer nothing.
        arrival_timeout: seconds beyond that which the ranks wait for one that answers them: how
            much longer one rank's local steps may take than another's. Default: the group's
            timeout.
        connect_timeout, interface, port, token, link: as for `register`.
        mask_momentum: whether momentum of the elements that this rank has sent is set to 0 after a
            round, so that it doesn't push on what has just left (momentum masking; supplement A of
            the paper). Has an effect with sparse codecs only.
        momentum: the names under which the optimizer's state keeps momentum, tensors of their
            parameter's shape. The default covers SGD, RMSprop ("momentum_buffer") and the Adam
            family ("exp_avg"); second moments ("exp_avg_sq") aren't momentum.
        bucket_bytes: parameters are exchanged in buckets of about this size, so that one is encoded
            while another is on its way; equal on all ranks.
        threads: as for `register`.
        group: the process group, default: the world. One rank alone is fine: its changes pass
            through the codec, and nothing through a network.

    Raises:
        DTypeError (a TypeError): a DDP model, no model, no optimizer, parameters that can't be
            exchanged.
        InvalidArgumentError (a ValueError): bad spec or setting, no process group, a parameter in
            the optimizer that isn't in the model, masking with a pattern that can't ("ring").
        DeltawireError: a rank with other settings or another model ("Mismatch"), a rank that could
            not take part ("Aborted"), ranks that don't connect ("Timeout"); alike on every rank.

    Attributes:
        rank, world_size: in the process group.
        spec: canonical, e.g. "gather(sbc:p=0.01)".
        round: rounds finished.
        local_steps: steps taken since the last round.

    Changes of weights have no loss scale, so that there is no scaler= here. A change that isn't
    finite fails the round ("NotFinite") with codecs that carry finite values only, on every rank: a
    rank whose weights are NaN has nothing that could be averaged. Skip local steps whose gradients
    aren't finite; `GradScaler.unscale_` and `clip_grad_norm_` tell.

    A failed round raises the typed DeltawireError from `step` or `exchange`, on every rank. The
    parameters then have the values of this rank's local steps, and residuals and reference are
    those of before the round, so that `state_dict` loses nothing; the trainer is closed, and a new
    one is needed to go on.

    It can't be copied or pickled (TypeError): keep its `state_dict`. The model can.

    Memory: reference weights, weight changes, and with error feedback two residuals: four times the
    parameters. Thread rule: one thread at a time; metrics, step_records and last_error from any.
    """

    _kind = "trainer"
    _nonfinite_advice = "LocalSteps lets none pass: skip local steps whose gradients are not finite"

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        steps: Steps,
        reducer: Policy,
        min_elements: int = 256,
        timeout: float = 120.0,
        arrival_timeout: float | None = None,
        connect_timeout: float = 60.0,
        interface: str | None = None,
        port: int | str | None = None,
        token: str | bytes | None = None,
        link: _core.LinkShape | None = None,
        mask_momentum: bool = True,
        momentum: Sequence[str] = DEFAULT_MOMENTUM,
        bucket_bytes: int = _BUCKET_BYTES,
        threads: int | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        if not dist.is_initialized():
            raise make_error(
                "InvalidArgument",
                "there is no process group; call torch.distributed.init_process_group first",
            )
        self._group = dist.group.WORLD if group is None else group
        with bootstrap.Meeting(self._group) as meeting:
            reducer = spec_of(reducer)
            wrappers.check_bare(model)
            arguments.check_optimizer(optimizer, model)
            self.steps = steps
            self._optimizer = optimizer
            self._timeout_ms = arguments.timeout_in_ms(timeout)
            # "fold" would put a failed round's changes into the residual; but they are still in
            # the weights, and would count twice.
            options = arguments.reducer_options(min_elements, "exact", threads)
            arguments.check_link(link)
            arguments.check_positive("bucket_bytes", bucket_bytes)
            spec = _core.canonical_spec(reducer)
            self._weights = Weights(model, bucket_bytes)
            self._momentum = Momentum(optimizer, self._weights, momentum)
            self._masks = bool(mask_momentum) and self._momentum.can_be_masked(spec)
            meeting.settings = self._settings_text(spec, min_elements, bucket_bytes, model)
            arrival_ms = arguments.arrival_timeout_in_ms(arrival_timeout, self._group)
            meeting.listen(interface, port, connect_timeout, token)
        self.round = 0
        self.local_steps = 0
        super().__init__(meeting.connect(reducer, options, link, arrival_ms), meeting.place)
        try:
            broadcast_model(model, self._group)
        except BaseException:
            self.close()
            raise
        self._weights.start_from_here()

    def _settings_text(
        self, spec: str, min_elements: int, bucket_bytes: int, model: torch.nn.Module
    ) -> str:
        """What must be equal on all ranks."""
        return (
            f"LocalSteps reducer={spec} min_elements={min_elements} "
            f"steps={self.steps if isinstance(self.steps, int) else 'scheduled'} "
            f"bucket_bytes={bucket_bytes} model={layout_digest(model)} "
            f"version={_core.__version__} world_size={dist.get_world_size(self._group)}"
        )

    @property
    def steps(self) -> Steps:
        """Local steps a round. May be set at any time, for the round under way too, in the same way
        on every rank: ranks are compared at the start only. A rank with more steps keeps the others
        waiting, and past `arrival_timeout` it is named."""
        return self._steps

    @steps.setter
    def steps(self, steps: Steps) -> None:
        if not callable(steps):
            arguments.check_positive("steps", steps)
        self._steps = steps

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step of the optimizer, with its closure and result, and after the last of a round the
        round.

        Raises DeltawireError as described for the class, "State" when closed.
        """
        self._check_open()
        steps = self._steps
        if callable(steps):
            steps = steps(self.round)
            arguments.check_positive(f"steps({self.round})", steps)
        result = self._optimizer.step() if closure is None else self._optimizer.step(closure)
        self.local_steps += 1
        if self.local_steps >= steps:
            self.exchange()
        return result

    def exchange(self) -> None:
        """Ends the round now, on every rank; does nothing where no local step was taken since the
        last, so that it may stand after any training loop.

        Raises DeltawireError as described for the class, "State" when closed.
        """
        self._check_open()
        if not self.local_steps:
            return
        try:
            self._run_round()
        except BaseException as cause:
            self._give_up(cause)
            raise

    def _run_round(self) -> None:
        self._weights.check_left_out()
        momenta = self._momentum.tensors() if self._masks else []
        last = self._weights.bucket_count - 1
        under_way = _Round(self._history, self._weights, self.local_steps)
        for bucket in range(last + 1):
            changes = self._weights.changes_of(bucket)
            step = _core.Step(self.round, bucket, bucket == last)
            self._session.submit(changes, step, self._timeout_ms, under_way.complete)
        under_way.wait()
        self._weights.apply_means()
        self.round += 1
        self.local_steps = 0
        if self._masks:
            self._momentum.mask(self._session, momenta)

    def _give_up(self, cause: BaseException) -> None:
        super()._give_up(cause)
        self.close()

    def _check_open(self) -> None:
        if not self._session.closed:
            return
        error = self.last_error
        raise make_error(
            "State",
            "this LocalSteps is closed; make a new one to go on"
            + (f" (it ended with: {error})" if error else ""),
            error.suspect if error else None,
            error.standing_step if error else None,
        )

    def explain(self) -> Explanation:
        """What each tensor's change gets in the next round, and what it took in the last: a table
        as text. Call between rounds; DeltawireError ("State") within one.
        """
        return self._explain(self._weights.tensors(), self.round)

    def state_dict(self) -> dict:
        """What a checkpoint must keep of this rank, at any point of a round, also after a failed
        one; every rank saves its own, and the optimizer's and the buffers beside it.

        Tensors: `residuals` (uint8), and by parameter name `reference` (the weights after the last
        round) and `parameters` (as they are now). The rest says where they belong.
        """
        return self._state(round=self.round, local_steps=self.local_steps, **self._weights.state())

    def load_state_dict(self, state: dict) -> None:
        """Puts back what `state_dict` gave, the model's parameters included, on every rank or on
        none: all ranks call it, and it is a collective on the process group.

        Raises InvalidArgumentError (a ValueError) where the state is of another rank, world size,
        spec, version or model, DeltawireError where its bytes are damaged, another rank could not
        load ("Aborted"), or the ranks' states aren't of the same round ("Mismatch"). Then nothing
        is changed.
        """
        self._check_open()
        before = self._session.save()
        problem, loaded = None, False
        offer = bootstrap.Offer()
        try:
            self._check_state(state, ("round", "local_steps"), ("reference", "parameters"))
            self._weights.check_state(state)
            self._load_residuals(state)
            loaded = True
            offer.settings = (
                f"round {state['round']}, reference {values_digest(state['reference'])}"
            )
        except Exception as cause:
            problem, offer.problem = cause, bootstrap.problem_of(cause)
        try:
            offers = bootstrap.swap(offer, self._group)
            if problem is None:
                _check_states(offers)
        except BaseException as cause:
            problem = problem or cause
        if problem is not None:
            if loaded:
                self._session.load(memoryview(before))
            raise problem
        self._weights.load(state)
        self.round, self.local_steps = state["round"], state["local_steps"]

    def __reduce__(self):
        """There is one owner of connections and a thread: neither copy nor pickle."""
        raise TypeError(
            "a LocalSteps can't be copied or pickled: it owns connections; copy or save the model, "
            "and keep the trainer's state_dict()"
        )

    def __enter__(self) -> "LocalSteps":
        return self

    def __exit__(self, kind, cause, traceback) -> None:
        """Closes; an exception on its way out is told to the other ranks, who'd wait for this."""
        if cause is not None and not self.closed:
            self._give_up(cause)
        self.close()


class _Round:
    """Waits for the buckets of a round. `complete` runs on the communication thread and keeps the
    weights' memory until it is over, whoever has stopped waiting meanwhile."""

    def __init__(self, history: History, weights: Weights, local_steps: int) -> None:
        self._history = history
        self._weights = weights
        self._left = weights.bucket_count
        self._local_steps = local_steps
        self._error: DeltawireError | None = None
        self._over = threading.Event()

    def complete(self, error: DeltawireError | None, report) -> None:
        """Of one bucket; called in the order of buckets, for each of them, whatever happens."""
        try:
            self._left -= 1
            also = {"local_steps": self._local_steps}
            error = self._history.end(error, report, self._left == 0, also)
            self._error = self._error or error
        finally:  # without it nobody would ever end the wait
            if self._left == 0:
                self._over.set()

    def wait(self) -> None:
        """Until the last bucket is over; raises the first error."""
        self._over.wait()
        if self._error is not None:
            raise self._error


def _check_states(offers: list[bootstrap.Offer]) -> None:
    """Raises, alike on every rank, where a rank could not load, or states don't fit together."""
    for rank, offer in enumerate(offers):
        if offer.problem is not None:
            raise make_error("Aborted", f"rank {rank} can't load: {offer.problem}", rank)
    for rank, offer in enumerate(offers):
        if offer.settings != offers[0].settings:
            raise make_error(
                "Mismatch",
                f"rank {rank}'s state is of {offer.settings}, rank 0's of {offers[0].settings}; "
                "load states that were saved between the same two rounds",
                rank,
            )
