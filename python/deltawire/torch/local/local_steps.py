"""Local steps: each rank trains alone for a while, and then the ranks exchange what has changed.

SBC's algorithm 1 (Sattler, Wiedemann, Müller, Samek, "Sparse Binary Compression: Towards
Distributed Deep Learning with minimal Communication", 2019) for any reducer and any optimizer;
without compression it is federated averaging (McMahan et al., 2017) with equal shares. With an
outer optimizer it is DiLoCo (Douillard et al., 2023, algorithm 1).
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.leaving import exception_under_way
from deltawire.policy import Policy, spec_of
from deltawire.terms import Terms, exchange_settings
from deltawire.torch.core import arguments, bootstrap, momentum_advice, wrappers
from deltawire.torch.core.abort_on_error import AbortsOnError
from deltawire.torch.core.checkpoint import RESIZE_ADVICE, collective_load
from deltawire.torch.core.module_parameters import broadcast_model, layout
from deltawire.torch.local import state as local_state
from deltawire.torch.local.exchange import LocalExchange
from deltawire.torch.local.momentum import DEFAULT_MOMENTUM, Momentum
from deltawire.torch.local.outer import OuterFactory, factory_of
from deltawire.torch.local.weights import Weights
from deltawire.torch.metrics.explanation import Explanation
from deltawire.torch.participant import Participant

_BUCKET_BYTES = 25 << 20

Steps = int | Callable[[int], int]


class LocalSteps(AbortsOnError, Participant):
    """A rank's local steps and rounds; made on every rank at once::

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
            exchanges by itself. Its parameters that require gradients, float32, bfloat16 or float16
            on the CPU, are exchanged; which they are stays as it is now. What changes in 16 bits
            travels and adds up as float32. At the start all parameters and buffers become rank 0's,
            as with DDP. From then on buffers (statistics of BatchNorm) are each rank's own: a lossy
            mean could turn a variance negative. Frozen parameters stay what they are.
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
        arrival_timeout: seconds that the ranks wait for one that answers them and has not arrived:
            how much longer one rank's local steps may take than another's; `timeout` where that is
            longer. Default: the group's timeout.
        connect_timeout, interface, port, token, link: as for `register`.
        mask_momentum: whether momentum of the elements that this rank has sent is set to 0 after a
            round, so that it doesn't push on what has just left (momentum masking; supplement A of
            the paper). Has an effect with sparse codecs only. Default: yes with delay=0; with
            delay=1 momentum has gone on when the round ends, and isn't masked.
        momentum: the names under which the optimizer's state keeps momentum. The default covers
            SGD, RMSprop ("momentum_buffer") and the Adam family ("exp_avg").
        bucket_bytes: changes are exchanged in buckets of about this size; equal on all ranks.
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

    Changes of weights have no loss scale, so there is no scaler= here. A change that isn't finite
    fails the round ("NotFinite") on every rank, with codecs that carry finite values only. Skip
    local steps whose gradients aren't finite; `GradScaler.unscale_` and `clip_grad_norm_` tell.

    A failed round raises the typed DeltawireError from `step` or `exchange`, on every rank; with
    delay=1 from the next call, `close` included. The parameters then have the values of this rank's
    local steps, and residuals and reference are those of before the round, so that `state_dict`
    loses nothing; the trainer is closed, and a new one is needed to go on. It can't be copied or
    pickled (TypeError): keep its `state_dict`. The model can.

    Memory: reference weights, weight changes, and with error feedback two residuals: four times the
    parameters as float32, five times for those of 16 bits. An outer optimizer's state comes to that
    (SGD's momentum: once), and with delay=1 three times a fragment. Thread rule: one thread;
    metrics, step_records and last_error: any.
    """

    _name = "LocalSteps"
    _instead = "copy or save the model, and keep the trainer's state_dict()"
    _kind = "trainer"
    _state_version = local_state.VERSION
    _resize_advice = RESIZE_ADVICE
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
            # "fold" would let a failed round's changes count twice: they are in the weights still.
            options = arguments.reducer_options(min_elements, "exact", threads)
            arguments.check_link(link)
            arguments.check_positive("bucket_bytes", bucket_bytes)
            self._weights = Weights(model, bucket_bytes, fragments, factory_of(outer))
            arguments.warn_of_rules_without_tensor(spec, self._weights.names, meeting.place[0])
            masked = Momentum(optimizer, self._weights, momentum)
            masked = masked.wanted(spec, mask_momentum, delay)
            timeout_ms = arguments.timeout_in_ms(timeout)
            self._exchange = LocalExchange(self._weights, masked, delay, timeout_ms)
            settings = exchange_settings(spec, min_elements, "exact")
            settings |= {"steps": "scheduled" if callable(steps) else steps}
            settings |= {**self._exchange.settings(), "bucket_bytes": bucket_bytes}
            meeting.agree_on(Terms("LocalSteps", layout(model), **settings))
            arrival_ms = arguments.arrival_timeout_in_ms(arrival_timeout, self.group)
            meeting.listen(interface, port, connect_timeout, token)
        self.round = self.local_steps = 0
        session = meeting.connect(spec, options, link, arrival_ms)
        super().__init__(session, meeting.place, group=self.group)
        self._exchange.connect(self._session, self._history)
        with self._aborting_on_error():
            broadcast_model(model, self.group)
        self._weights.start_from_here()
        if steps == 1 and self.rank == 0:  # of more, the optimizer's momentum is in the changes
            kind = type(optimizer).__name__
            momentum_advice.warn(spec, kind, optimizer.param_groups, stacklevel=3)

    @property
    def steps(self) -> Steps:
        """Local steps a round. May be set at any time, for the round under way too, alike on every
        rank: they are compared at the start only. A rank with more steps keeps the others waiting,
        and past `arrival_timeout` it is named."""
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
        their last exchange; all ranks' weights are equal then. It may stand after any loop.

        Args:
            always: for ranks that differ in their steps: this one takes part, with no change of its
                own if it has taken none, because others may have. Then all ranks give it.

        Raises as `step`.
        """
        self._check_open()
        with self._aborting_on_error():
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
        between the same two rounds; the next one compares their weights. Raises as `step`.
        """
        self._check_open()
        with self._aborting_on_error():
            self._exchange.finish()
            self._weights.start_from_here(compared=True)
        self._exchange.progress.since = [0] * self._weights.fragment_count
        self._exchange.progress.next = self.local_steps = 0

    def close(self) -> None:
        """As for every exchange; but one that is under way (delay=1) may end first, and is applied:
        all ranks close, and the last round counts. It raises what that one ended with, if nobody
        was told. At exit nothing waits, and such an exchange is aborted on every rank; so it is
        while an exception is on its way, which the other ranks hear of."""
        if not self._session.closed and (cause := exception_under_way()) is not None:
            self._give_up(cause)
        if not self._session.closed:
            with self._aborting_on_error():
                self._exchange.finish()
        super().close()

    def _next_steps(self) -> int:
        """Local steps of this round, once all is well so far."""
        self._check_open()
        if self._exchange.failed:
            with self._aborting_on_error():
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
        with self._aborting_on_error():
            while progress.due(self.local_steps, steps):
                self._log_summary()
                self._exchange.begin(progress.next)
                progress.next += 1
        if progress.round_is_over:
            self._end_round()

    def _end_round(self) -> None:
        self.round += 1
        self._exchange.progress.next = self.local_steps = 0

    def _give_up(self, cause: BaseException) -> None:
        super()._give_up(cause)
        super().close()
        self._exchange.settle()

    def _check_open(self) -> None:
        if self._session.closed:
            raise self._closed_error()

    def explain(self) -> Explanation:
        """As `Hook.explain`, of the changes; waits for an exchange under way."""
        self._exchange.settle()
        return self._explain(self._weights.tensors(), self._exchange.progress.exchanges)

    def metrics(self) -> dict:
        """As for every exchange, where with fragments= a step is the exchange of one of them; and
        of those that were applied under_way_ms (from when all of the last one was handed over to
        its end), waited_ms (for how much of it the training loop stood still), hidden (of all so
        far, the share of that time in which it did not; None before the first), and the sums of the
        first two, total_under_way_ms and total_waited_ms.
        """
        return {**super().metrics(), **self._exchange.waits.metrics()}

    def state_dict(self) -> dict:
        """What a checkpoint must keep of this rank, at any point of a round, also after a failed
        one; every rank saves its own, and the optimizer's and the buffers beside it. Saving changes
        nothing: what is under way is kept as it came. "State" where an exception (Ctrl-C) came
        while weights were set: go on from the checkpoint before.

        The trainer is a `Stateful` of torch.distributed.checkpoint: save({"trainer": trainer})
        keeps what all ranks have. By rank, `residuals` has a uint8 tensor and `own` the weights as
        they are; `common` has those after the last round, and what else all have alike.
        """
        numbers = {"round": self.round, "local_steps": self.local_steps}
        return local_state.saved_form(self._state(**numbers, **self._exchange.state()))

    def load_state_dict(self, state: dict | Sequence[dict]) -> None:
        """Puts back what `state_dict` gave, the model's parameters included, on every rank or on
        none: all ranks call it, and it is a collective on the process group.

        Args:
            state: what this rank has saved (states of version 1, of earlier releases, too), or a
                list of what all ranks have, whatever their number: see `Hook.load_state_dict`.

        Raises InvalidArgumentError where the state is of another rank, world size, spec, version,
        model, outer optimizer or number of fragments, DeltawireError where its bytes are damaged,
        another rank could not load ("Aborted"), or the states aren't of one round ("Mismatch").
        Then nothing is changed.
        """
        self._check_open()
        with self._aborting_on_error():
            self._exchange.finish()
        own: dict = {}
        collective_load(self.group, self._session, lambda: self._offered(state, own))
        self._exchange.load(own)
        self.round, self.local_steps = own["round"], own["local_steps"]

    def _offered(self, state: dict | Sequence[dict], own: dict) -> str:
        """Loads a state's residuals, and puts the rest into `own`; what of it must be alike on all
        ranks."""
        place = self.rank, self.world_size
        flats = local_state.flats_of(state, place)
        for each in flats:
            self._check_state(each, ("round", "local_steps"), self._exchange.keys())
        alike = self._exchange.alike(flats)
        if isinstance(state, dict):
            own.update(flats[0])
            self._load_residuals(own)
        else:
            own.update(local_state.share_of(flats, place))
            self._load_resized([each["residuals"] for each in flats], self._weights.tensors())
        return alike
