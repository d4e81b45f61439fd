"""The common part of trainers of local steps, however their ranks find each other: the local steps,
the rounds that follow them, and checkpoints.

SBC's algorithm 1 (Sattler, Wiedemann, Müller, Samek, "Sparse Binary Compression: Towards
Distributed Deep Learning with minimal Communication", 2019) for any reducer and any optimizer;
without compression it is federated averaging (McMahan et al., 2017) with equal shares. With an
outer optimizer it is DiLoCo (Douillard et al., 2023, algorithm 1).
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.session.history import Metrics
from deltawire.session.leaving import exception_under_way
from deltawire.torch.core import arguments
from deltawire.torch.core.abort import AbortsOnError
from deltawire.torch.core.checkpoint import RESIZE_ADVICE
from deltawire.torch.core.optimizer_rules.momentum_advice import warn_of
from deltawire.torch.local import state as local_state
from deltawire.torch.local.exchange import LocalExchange
from deltawire.torch.local.weights import Weights
from deltawire.torch.metrics.explanation import Explanation
from deltawire.torch.participant import Participant

Steps = int | Callable[[int], int]
CODECS_OF_ROUNDS = (
    '"3lc", or "sbc:p=1%" for the fewest bytes; then double steps= while the accuracy holds'
)


class LocalMetrics(Metrics):
    """What `LocalSteps.metrics` returns, for type checkers."""

    under_way_ms: float
    waited_ms: float
    total_under_way_ms: float
    total_waited_ms: float
    hidden: float | None


class LocalTrainer(AbortsOnError, Participant):
    """One rank's local steps and rounds: the base of `LocalSteps` and `ElasticLocalSteps`.

    Args:
        optimizers, steps: see `LocalSteps`.
        weights: of the model, which are exchanged.
        exchange: of these, to be connected.
    """

    _kind = "trainer"
    _state_version = local_state.VERSION
    _resize_advice = RESIZE_ADVICE
    _instead = "copy or save the model, and keep the trainer's state_dict()"

    def __init__(
        self,
        optimizers: tuple[torch.optim.Optimizer, ...],
        steps: Steps,
        weights: Weights,
        exchange: LocalExchange,
    ) -> None:
        """Before the session: a joiner's state is asked for as soon as that is there."""
        self.steps, self._optimizers = steps, optimizers
        self._weights, self._exchange = weights, exchange
        self.round: int = 0
        self.local_steps: int = 0

    def _connect(
        self,
        session,
        place: tuple[int, int],
        group: dist.ProcessGroup | None = None,
        carrier: str = "tcp",
    ) -> None:
        """Takes part in this session from now on."""
        Participant.__init__(self, session, place, group=group, carrier=carrier)
        self._exchange.connect(self._session, self._history)

    def _settings(self) -> dict[str, object]:
        """What must be equal on all ranks besides the settings of its session."""
        steps, exchange = self._steps, self._exchange
        settings = {"steps": "scheduled" if callable(steps) else steps, **exchange.settings()}
        return settings | {"coder": exchange.choice.coder}

    def _warn_of_momentum(self, *, stacklevel: int) -> None:
        """Warns of single steps with momentum, because only the changes of several contain it, and
        of an outer momentum with a late codec. `stacklevel` as warnings.warn has it, from here."""
        spec, places = self.parsed_spec, _core.OptimizerPlace
        for each in self._optimizers if self._steps == 1 else ():
            warn_of(spec, each, places.LOCAL_STEPS, stacklevel=stacklevel + 1)
        if self.outer:
            warn_of(spec, self.outer, places.OUTER, stacklevel=stacklevel + 1)

    @property
    def steps(self) -> Steps:
        """Local steps a round. May be set at any time, also for the current round, equally on every
        rank: they are compared only at the start. A rank with more steps keeps the others waiting;
        after `arrival_timeout` they fail and name it."""
        return self._steps

    @steps.setter
    def steps(self, steps: Steps) -> None:
        if not callable(steps):
            steps = arguments.check_positive("steps", steps)
        self._steps = steps

    @property
    def device(self) -> torch.device:
        """Of the model's first parameter."""
        return self._weights.devices[0]

    @property
    def outer(self) -> torch.optim.Optimizer | None:
        """The outer torch optimizer, or None."""
        return self._weights.outer.optimizer if self._weights.outer else None

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Steps the optimizers, the first with the closure, whose result it returns; after the last
        step of a round also exchanges (with fragments or a delay, whatever part of a round is due).

        Raises DeltawireError as described for the class; "State" when closed.
        """
        steps = self._next_steps()
        first, *others = self._optimizers
        result = first.step() if closure is None else first.step(closure)
        for each in others:
            each.step()
        self._count_step(steps)
        return result

    def stepped(self) -> None:
        """Like `step`, after something else has stepped the optimizer."""
        self._count_step(self._next_steps())

    def exchange(self, always: bool = False) -> None:
        """Ends the round now, on every rank, for all fragments with local steps since their last
        exchange. Afterwards all ranks' weights are equal. May follow any loop.

        Args:
            always: take part even without a step since the last round, because other ranks may have
                taken some. Set it on all ranks or on none.

        Raises like `step`.
        """
        self._check_open()
        with self._aborting_on_error():
            since = self._exchange.progress.since
            moved = [number for number, steps in enumerate(since) if always or steps]
            self._end_with(moved)

    def start_from_here(self) -> None:
        """Makes the current weights those of the last round, if something else has kept them equal
        on all ranks (a warm-up with DistributedDataParallel). Call it on every rank between the
        same two rounds; the next round compares the weights. Raises like `step`.
        """
        self._check_open()
        with self._aborting_on_error():
            self._exchange.finish()
            self._weights.start_from_here(compared=True)
        self._exchange.progress.since = [0] * self._weights.fragment_count
        self._exchange.progress.next = self.local_steps = 0

    def close(self) -> None:
        """Closes like every hook, but first waits for a running exchange (delay=1) and applies it,
        or raises its error if that was not raised yet. At exit, and during an exception, it doesn't
        wait: the exchange is aborted on every rank, and the other ranks get the exception's text.
        """
        if not self._session.closed and (cause := exception_under_way()) is not None:
            self._give_up(cause)
        if not self._session.closed:
            with self._aborting_on_error():
                self._exchange.finish()
        super().close()
        self._exchange.close()

    def _next_steps(self) -> int:
        """The local steps of this round. Raises if the trainer is closed or has failed."""
        self._check_open()
        if self._exchange.failed:
            with self._aborting_on_error():
                self._exchange.finish()
        steps = self.steps
        if callable(steps):
            return arguments.check_positive(f"steps({self.round})", steps(self.round))
        return steps

    def _count_step(self, steps: int) -> None:
        progress = self._exchange.progress
        self.local_steps += 1
        with self._aborting_on_error():
            self._exchange.count_step()
            while progress.due(self.local_steps, steps):
                self._begin(progress.next)
                progress.next += 1
        if progress.round_is_over:
            self._end_round()

    def _begin(self, fragment: int, later: Sequence[int] | None = None) -> None:
        """Begins a fragment's exchange; `later`: those that follow at once, and end the round."""
        self._log_summary()
        self._exchange.begin(fragment)

    def _end_with(self, fragments: Sequence[int]) -> None:
        """Exchanges these, and ends the round."""
        for at, fragment in enumerate(fragments):
            self._begin(fragment, fragments[at + 1 :])
        if fragments:
            self._end_round()
        self._exchange.finish()

    def _end_round(self) -> None:
        self.round += 1
        self._exchange.progress.next = self.local_steps = 0

    def _give_up(self, cause: BaseException) -> None:
        super()._give_up(cause)
        super().close()
        self._exchange.settle()
        self._exchange.close()

    def _check_open(self) -> None:
        if self._session.closed:
            raise self._closed_error()

    def explain(self) -> Explanation:
        """As `Hook.explain`, for weight changes. Waits for a running exchange."""
        self._exchange.settle()
        number = self._exchange.progress.exchanges
        return self._explain(self._weights.tensors(), number, self._exchange.choice.coded_on)

    def metrics(self) -> LocalMetrics:
        """As for every hook; with fragments= a step is the exchange of one fragment. In addition,
        of applied exchanges: under_way_ms (duration of the last one), waited_ms (how much of it the
        training loop waited), their sums total_under_way_ms and total_waited_ms, and hidden (the
        fraction of all that time in which the loop did not wait; None before the first).
        """
        return {**super().metrics(), **self._exchange.waits.metrics()}

    def state_dict(self) -> dict:
        """This rank's state for a checkpoint, at any point of a round, also after a failed one.
        Every rank saves its own, in addition to the optimizer's state and the buffers. All tensors
        are on the CPU, wherever the model is, and may be loaded on another device. Saving changes
        nothing; a running exchange is saved with its result. Raises "State" if an exception
        (Ctrl-C) came while weights were being set: continue from the previous checkpoint.

        The trainer is a `Stateful` of torch.distributed.checkpoint: save({"trainer": trainer})
        saves the states of all ranks. By rank, `residuals` has a uint8 tensor and `own` the present
        weights; `common` has the weights after the last round, and whatever else is equal on all.
        """
        numbers = {"round": self.round, "local_steps": self.local_steps}
        state = self._state(**numbers, **self._exchange.state())
        return local_state.saved_form(state)

    def _offered(self, state: dict | Sequence[dict], own: dict) -> str:
        """Loads a state's residuals and puts the rest into `own`. Returns a text that must be equal
        on all ranks."""
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
