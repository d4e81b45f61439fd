"""Local steps: each rank trains alone for a while, and then the ranks exchange what has changed.

SBC's algorithm 1 (Sattler, Wiedemann, Müller, Samek, "Sparse Binary Compression: Towards
Distributed Deep Learning with minimal Communication", 2019) for any reducer and any optimizer;
without compression it is federated averaging (McMahan et al., 2017) with equal shares. With an
outer optimizer it is DiLoCo (Douillard et al., 2023, algorithm 1).
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.errors import make_error
from deltawire.policy import Policy, spec_of
from deltawire.torch import arguments, bootstrap, wrappers
from deltawire.torch.explanation import Explanation
from deltawire.torch.joint_load import load_on_all
from deltawire.torch.local_exchange import LocalExchange
from deltawire.torch.momentum import DEFAULT_MOMENTUM, Momentum
from deltawire.torch.outer import OuterFactory, factory_of
from deltawire.torch.participant import Participant
from deltawire.torch.weights import Weights, broadcast_model, layout_digest

_BUCKET_BYTES = 25 << 20

Steps = int | Callable[[int], int]


class LocalSteps(Participant):
    """A rank's local steps and rounds; made on every rank at the same time::

        trainer = deltawire.torch.LocalSteps(model, optimizer, steps=10, reducer="sbc:p=1%")
        for x, y in batches:
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            trainer.step()
        trainer.exchange()

    After `steps` local steps comes a round: what has changed in each parameter since the last round
    is averaged over the ranks through the reducer, which adds what it didn't send before (its
    residual), and `weights of the last round + mean` are the new weights, bit-equal on every rank.
    Every rank's change has an equal share in the mean, however many steps it stands for.

    Args:
        model: the bare module, compiled or not; no DistributedDataParallel and nothing else that
            exchanges by itself. Its parameters that require gradients are float32 on the CPU; they
            are exchanged, and which they are stays as it is now. At the start all parameters and
            buffers become rank 0's, as with DDP. From then on buffers (statistics of BatchNorm) are
            each rank's own: a lossy mean could turn a variance negative. Frozen parameters stay
            what they are.
        optimizer: any torch.optim.Optimizer whose parameters are the model's.
        reducer: codec, e.g. "sbc:p=1%", or pattern and codec, "gather(sbc)", or a policy, as for
            `register`; equal on all ranks.
        steps: local steps a round, 1 or more, equal on all ranks; or a function of the round's
            number (0, 1, ...) that gives them, for each rank its own if need be. See `steps` below.
        outer: an outer optimizer, which steps the weights of the last round with minus the mean
            change for a gradient, in the place of adding the mean: DiLoCo. A function that makes
            any torch optimizer from a list of parameters, e.g. functools.partial(torch.optim.SGD,
            lr=0.7, momentum=0.9, nesterov=True), or that one's name, "nesterov".
        delay: 1: a round's exchange goes on while the local steps of the next one are taken, and
            its result is applied when those end. What a rank has moved meanwhile stays on top of
            it, and is what it gives the next round (as in CoCoD-SGD: Shen et al., IJCAI 2019), so
            that the ranks' weights are equal after `exchange()` alone. 0: the ranks wait for it.
        fragments: the model's layers are cut into so many fragments of about the same bytes, each
            of which is exchanged once a round, at steps that are spread over it, the last one at
            its end (Streaming DiLoCo: Douillard et al., 2025): as many bytes, but 1 / fragments of
            them at one time. With delay=1, while the steps up to the next fragment's are taken.
        min_elements: parameters below this many elements travel uncompressed; equal on all ranks.
        timeout: seconds that a bucket of a round may take, from when all have arrived, before the
            ranks give up and name the culprit; and that a rank may answer nothing.
        arrival_timeout: seconds beyond that which the ranks wait for one that answers them: how
            much longer one rank's local steps may take than another's. Default: the group's
            timeout.
        connect_timeout, interface, port, token, link: as for `register`.
        mask_momentum: whether momentum of the elements that this rank has sent is set to 0 after a
            round, so that it doesn't push on what has just left (momentum masking; supplement A of
            the paper). Has an effect with sparse codecs only. Default: yes with delay=0; with
            delay=1 momentum has gone on when the round ends, and isn't masked.
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
        group, rank, world_size: the process group, and this rank's place in it.
        spec: canonical, e.g. "gather(sbc:p=0.01)".
        outer: the outer torch optimizer, None without. A schedule of its rate is every rank's to
            follow alike: the next round compares the weights, and fails ("Mismatch") if they
            differ.
        round: rounds finished; with delay=1 the last one's exchange may be under way.
        local_steps: steps taken since the last round.

    Changes of weights have no loss scale, so that there is no scaler= here. A change that isn't
    finite fails the round ("NotFinite") with codecs that carry finite values only, on every rank: a
    rank whose weights are NaN has nothing that could be averaged. Skip local steps whose gradients
    aren't finite; `GradScaler.unscale_` and `clip_grad_norm_` tell.

    A failed round raises the typed DeltawireError from `step` or `exchange`, on every rank; with
    delay=1 from the next call, `close` included. The parameters then have the values of this rank's
    local steps, and residuals and reference are those of before the round, so that `state_dict`
    loses nothing; the trainer is closed, and a new one is needed to go on.

    It can't be copied or pickled (TypeError): keep its `state_dict`. The model can.

    Memory: reference weights, weight changes, and with error feedback two residuals: four times the
    parameters. An outer optimizer's state comes to that (SGD's momentum: once), and with delay=1
    three times a fragment. Thread rule: one thread; metrics, step_records and last_error: any.
    """

    _kind = "trainer"
    _nonfinite_advice = "LocalSteps lets none pass: skip local steps whose gradients are not finite"

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        reducer: Policy,
        *,
        steps: Steps,
        outer: str | OuterFactory | None = None,
        delay: int = 0,
        fragments: int = 1,
        min_elements: int = 256,
        timeout: float = 120.0,
        arrival_timeout: float | None = None,
        connect_timeout: float = 60.0,
        interface: str | None = None,
        port: int | str | None = None,
        token: str | bytes | None = None,
        link: _core.LinkShape | None = None,
        mask_momentum: bool | None = None,
        momentum: Sequence[str] = DEFAULT_MOMENTUM,
        bucket_bytes: int = _BUCKET_BYTES,
        threads: int | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.group = bootstrap.given_or_world(group)
        with bootstrap.Meeting(self.group) as meeting:
            spec = _core.canonical_spec(spec_of(arguments.named(reducer, "LocalSteps")))
            wrappers.check_bare(model)
            arguments.check_optimizer(optimizer, model)
            self.steps = steps
            self._optimizer = optimizer
            # "fold" would put a failed round's changes into the residual; but they are still in
            # the weights, and would count twice.
            options = arguments.reducer_options(min_elements, "exact", threads)
            arguments.check_link(link)
            arguments.check_positive("bucket_bytes", bucket_bytes)
            self._weights = Weights(model, bucket_bytes, fragments, factory_of(outer))
            masked = Momentum(optimizer, self._weights, momentum)
            masks = masked.wanted(spec, mask_momentum, delay)
            self._exchange = LocalExchange(
                self._weights, masked if masks else None, delay, arguments.timeout_in_ms(timeout)
            )
            meeting.settings = self._settings_text(model, spec, min_elements, bucket_bytes, delay)
            arrival_ms = arguments.arrival_timeout_in_ms(arrival_timeout, self.group)
            meeting.listen(interface, port, connect_timeout, token)
        self.round = self.local_steps = 0
        super().__init__(meeting.connect(spec, options, link, arrival_ms), meeting.place)
        self._exchange.connect(self._session, self._history)
        try:
            broadcast_model(model, self.group)
        except BaseException:
            self.close()
            raise
        self._weights.start_from_here()

    def _settings_text(self, model: torch.nn.Module, spec: str, *numbers: int) -> str:
        """What must be equal on all ranks."""
        min_elements, bucket_bytes, delay = numbers
        return (
            f"LocalSteps reducer={spec} min_elements={min_elements} "
            f"steps={self.steps if isinstance(self.steps, int) else 'scheduled'} "
            f"outer={self._weights.outer} delay={delay} "
            f"fragments={self._weights.fragment_count} "
            f"bucket_bytes={bucket_bytes} model={layout_digest(model)} "
            f"version={_core.__version__} world_size={dist.get_world_size(self.group)}"
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

    @property
    def outer(self) -> torch.optim.Optimizer | None:
        """The outer optimizer."""
        return self._weights.outer.optimizer if self._weights.outer else None

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step of the optimizer, with its closure and result, and after the last of a round the
        round (or what of it is due: a fragment's, the begin of one that is delayed).

        Raises DeltawireError as described for the class, "State" when closed.
        """
        steps = self._next_steps()
        result = self._optimizer.step() if closure is None else self._optimizer.step(closure)
        self._count_step(steps)
        return result

    def stepped(self) -> None:
        """As `step`, where something else has just called the optimizer."""
        self._count_step(self._next_steps())

    def exchange(self, always: bool = False) -> None:
        """Ends the round now, on every rank, for all fragments that have had local steps since
        their last exchange, and leaves equal weights on all ranks. It does nothing where they are
        so already, so that it may stand after any training loop.

        Args:
            always: for ranks that differ in their steps: this one takes part, with no change of its
                own if it has taken none, because others may have. Then all ranks give it.

        Raises DeltawireError as described for the class, "State" when closed.
        """
        self._check_open()
        with self._all_end_on_error():
            since = self._exchange.progress.since
            moved = [number for number, steps in enumerate(since) if always or steps]
            for fragment in moved:
                self._log_summary()
                self._exchange.begin(fragment)
            if moved:
                self._end_round()
            self._exchange.finish()

    def start_from_here(self) -> None:
        """Takes the present weights for those of the last round, where something else has kept them
        equal on all ranks so far (a warm-up with DistributedDataParallel). Every rank calls it
        between the same two rounds; the next one compares their weights.

        Raises DeltawireError as described for the class, "State" when closed.
        """
        self._check_open()
        with self._all_end_on_error():
            self._exchange.finish()
            self._weights.start_from_here(compared=True)
        self._exchange.progress.since = [0] * self._weights.fragment_count
        self._exchange.progress.next = self.local_steps = 0

    def close(self) -> None:
        """As for every exchange; but one that is under way (delay=1) may end first, and is applied:
        all ranks close, and the last round counts. It raises what that one ended with, if nobody
        was told. At exit nothing waits, and such an exchange is aborted on every rank."""
        if not self._session.closed:
            with self._all_end_on_error():
                self._exchange.finish()
        super().close()

    def _next_steps(self) -> int:
        """Local steps of this round, once all is well so far."""
        self._check_open()
        if self._exchange.failed:
            with self._all_end_on_error():
                self._exchange.finish()
        steps = self._steps
        if callable(steps):
            steps = steps(self.round)
            arguments.check_positive(f"steps({self.round})", steps)
        return steps

    def _count_step(self, steps: int) -> None:
        progress = self._exchange.progress
        self.local_steps += 1
        progress.count_step()
        with self._all_end_on_error():
            while progress.due(self.local_steps, steps):
                self._log_summary()
                self._exchange.begin(progress.next)
                progress.next += 1
        if progress.round_is_over:
            self._end_round()

    def _end_round(self) -> None:
        self.round += 1
        self._exchange.progress.next = self.local_steps = 0

    @contextlib.contextmanager
    def _all_end_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as cause:
            self._give_up(cause)
            raise

    def _give_up(self, cause: BaseException) -> None:
        super()._give_up(cause)
        super().close()
        self._exchange.settle()

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
        """What each tensor's change gets in the next exchange, and what it took in the last: a
        table as text. It waits for one that is under way."""
        self._exchange.settle()
        return self._explain(self._weights.tensors(), self._exchange.progress.exchanges)

    def metrics(self) -> dict:
        """As for every exchange, where with fragments= a step is the exchange of one of them; and
        of those that were applied:

        - under_way_ms: from when all of the last one was handed over to its end;
        - waited_ms: for how much of it the training loop stood still;
        - hidden: of all so far, the share of that time in which it did not (None before the first);
        - total_under_way_ms, total_waited_ms.
        """
        return {**super().metrics(), **self._exchange.waits.metrics()}

    def state_dict(self) -> dict:
        """What a checkpoint must keep of this rank, at any point of a round, also after a failed
        one; every rank saves its own, and the optimizer's and the buffers beside it. It waits for
        an exchange that is under way, and keeps what has come without applying it, so that saving
        changes nothing. "State" where an exception (Ctrl-C) came while weights were set: go on from
        the checkpoint before.

        Tensors: `residuals` (uint8), and by parameter name `reference` (the weights after the last
        round) and `parameters` (as they are now). The rest says where they belong, and has the
        outer optimizer's state and the exchange under way.
        """
        state = self._exchange.state()
        return self._state(round=self.round, local_steps=self.local_steps, **state)

    def load_state_dict(self, state: dict) -> None:
        """Puts back what `state_dict` gave, the model's parameters included, on every rank or on
        none: all ranks call it, and it is a collective on the process group.

        Raises InvalidArgumentError (a ValueError) where the state is of another rank, world size,
        spec, version, model, outer optimizer or number of fragments, DeltawireError where its bytes
        are damaged, another rank could not load ("Aborted"), or the ranks' states aren't of the
        same round ("Mismatch"). Then nothing is changed.
        """
        self._check_open()
        with self._all_end_on_error():
            self._exchange.finish()
        load_on_all(self.group, self._session, lambda: self._offered(state))
        self._exchange.load(state)
        self.round, self.local_steps = state["round"], state["local_steps"]

    def _offered(self, state: dict) -> str:
        """Loads a state's residuals; what of the rest must be alike on all ranks."""
        self._check_state(state, ("round", "local_steps"), self._exchange.keys())
        self._exchange.check_state(state)
        alike = f"round {state['round']}, {self._exchange.digest(state)}"
        self._load_residuals(state)
        return alike

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
