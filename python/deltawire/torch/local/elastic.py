"""Local steps that go on when ranks die, leave and join."""

from collections.abc import Callable, Sequence

import torch

from deltawire.arguments import timeout_in_ms
from deltawire.errors import invalid, mismatch, wrong_state
from deltawire.session.session import TIMEOUT
from deltawire.session.weighted import check_weight
from deltawire.torch.core import arguments, wrappers
from deltawire.torch.core.device.choice import Twins
from deltawire.torch.core.module_parameters import check_writable, layout_digest
from deltawire.torch.local.elastic_core import ElasticCore, TrainersSession
from deltawire.torch.local.exchange import LocalExchange, who_codes
from deltawire.torch.local.given import packed, unpacked
from deltawire.torch.local.momentum import DEFAULT_MOMENTUM, Momentum
from deltawire.torch.local.outer import OuterFactory, factory_of
from deltawire.torch.local.overlap import Overlap
from deltawire.torch.local.trainer import CODECS_OF_ROUNDS, LocalMetrics, LocalTrainer, Steps
from deltawire.torch.local.weights import Weights

_ONE_BUCKET = 1 << 62  # bytes: as few as a fragment has devices; a step exchanges all at once
_OWN = ("elastic", "state")  # arguments of a session that the trainer gives

Weight = float | Callable[[int], float]


class ElasticLocalSteps(LocalTrainer):
    """`LocalSteps` over an elastic `deltawire.Session`, without a process group::

        trainer = deltawire.torch.ElasticLocalSteps(
            model, optimizer, "3lc", steps=100, rank=rank, world_size=4, address="10.0.0.1:29600"
        )
        while trainer.round < 1000:
            optimizer.zero_grad()
            loss_of(model(next(batches))).backward()
            trainer.step()

    Rounds, fragments, overlap and outer optimizers are those of `LocalSteps`. When a rank dies, the
    others repeat the open exchange, with delay=1 or `overlap` while the training loop goes on.
    After each exchange the common weights are bit-equal on all members.

    A process that joins (without rank= and world_size=) gets the common weights, the outer
    optimizer's state, buffers, frozen parameters and the place in the round. It takes part in the
    open exchange without a change, and trains from there on. Its inner optimizer begins anew.

    Args:
        model, optimizer, outer, delay, overlap, mixing, fragments, mask_momentum, momentum: as for
            `LocalSteps`, and equal on all ranks. Nothing is sent at the start: all ranks that the
            session begins with must have equal weights, by a seed or a checkpoint; the first
            exchange compares them.
        reducer: codec, pattern and codec, or rules, as for `deltawire.Session`.
        steps: local steps a round, as for `LocalSteps`. A process that joins begins at the local
            step of the rank that gives it the state.
        weight: how much this rank's changes count in the mean: a number, 0 or more, or a function
            of the number of local steps that they come from, `lambda steps: steps * batch_size` for
            samples. The mean is sum(weight * change) / sum(weight). A rank that has taken no local
            step for an exchange counts 0 in it; if all count 0, no change is applied. Weights
            should be so small that codecs can carry weight * change: fp16 ends at 65,504.
        twins: as for `LocalSteps`; equal on all ranks, also of those that join.
        session: further arguments of `deltawire.Session`: rank, world_size, address, token,
            at_least, min_elements (2 or more), timeout and so on. arrival_timeout is the grace time
            of stragglers: how much longer one rank's local steps may take than another's.

    Raises:
        DTypeError (a TypeError), InvalidArgumentError (a ValueError): as `LocalSteps`.
        DeltawireError: as `deltawire.Session`.

    Attributes:
        session: the session, with members() and events. Its metrics() have no steps: see those of
            the trainer.
        rank, world_size: as they were after the last exchange.
        round, local_steps, outer: as of `LocalSteps`; rounds before this process joined count.

    An error that ends the session comes from `step` or `exchange`, as with `LocalSteps`, and closes
    the trainer: "Excluded" (join again), "NoQuorum", "Mismatch", "NotFinite". Memory: as
    `LocalSteps`; while members meet, a copy of the residuals. Thread rule: one thread; metrics,
    step_records and last_error: any.
    """

    _name = "ElasticLocalSteps"
    _nonfinite_advice = (
        "ElasticLocalSteps lets none pass: skip local steps whose gradients are not finite"
    )

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        reducer: str,
        *,
        steps: Steps,
        outer: str | OuterFactory | None = None,
        delay: int = 0,
        overlap: int = 0,
        mixing: float | None = None,
        fragments: int = 1,
        weight: Weight = 1.0,
        mask_momentum: bool | None = None,
        momentum: Sequence[str] = DEFAULT_MOMENTUM,
        twins: Twins = False,
        **session: object,
    ) -> None:
        if session.keys() & set(_OWN):
            raise invalid("elastic= and state= are ElasticLocalSteps' own")
        if "group" in session:
            raise invalid(
                "ElasticLocalSteps needs no process group: leave group= out, and give rank=, "
                "world_size= and address="
            )
        self._weight = weight if callable(weight) else check_weight(weight)
        wrappers.check_bare(model, "ElasticLocalSteps")
        optimizers = arguments.optimizers_of(model, optimizer)
        spec = arguments.spec_of(arguments.named(reducer, "ElasticLocalSteps", CODECS_OF_ROUNDS))
        if spec.holds_back:
            raise invalid(
                f"ElasticLocalSteps can't hold back what the weights don't show: {spec.given!r} is "
                "for LocalSteps"
            )
        weights = Weights(model, _ONE_BUCKET, fragments, factory_of(outer))
        weights.start_from_here(compared=True)
        overlaps = Overlap(delay, overlap, mixing)
        masked = Momentum(optimizers, weights, momentum)
        masked = masked.wanted(spec, mask_momentum, bool(overlaps))
        timeout_ms = timeout_in_ms(session.get("timeout", TIMEOUT))
        choice = who_codes(weights, twins, spec, timeout_ms, session.get("rank"))
        exchange = LocalExchange(weights, masked, overlaps, timeout_ms, choice)
        super().__init__(optimizers, steps, weights, exchange)
        self._model = model
        self._opened: dict | None = None  # where the open exchange stands
        self._foreign = [0] * fragments  # of each fragment's local steps, those before it joined
        parts, terms = choice.parts, self._terms()
        self.session = TrainersSession(spec.text, terms, parts, state=self._given, **session)
        # All, as a loaded state has residuals of fragments that had no turn yet.
        tensors = [(name, list(shape)) for name, shape in weights.tensors()]
        self.session.core.declare_tensors(tensors)
        self._connect(ElasticCore(self.session), (self.session.rank, self.session.world_size))
        if self.session.joined_state is not None:
            with self._aborting_on_error():
                self._take_over(unpacked(self.session.joined_state))
        choice.log(self.rank)
        if self.rank == 0:
            self._warn_of_momentum(stacklevel=3)

    def _terms(self) -> str:
        """What must be equal on all ranks besides the session's settings."""
        settings = {**self._settings(), "model": layout_digest(self._model)}
        told = ", ".join(f"{name}={value}" for name, value in settings.items() if value is not None)
        return f"ElasticLocalSteps: {told}"

    def exchange(self, always: bool = False) -> None:
        """As `LocalSteps.exchange`."""
        super().exchange(always)
        self._follow_session()

    def metrics(self) -> LocalMetrics:
        """As `LocalSteps.metrics`, and of the members "epoch", "world_size", "recoveries",
        "recovery_seconds" and "residual_lost" (see `Session`). Traffic is that of the epoch."""
        return {**super().metrics(), **self._session.changes()}

    def load_state_dict(self, state: dict | Sequence[dict]) -> None:
        """Restores what `state_dict` returned, including the model's parameters, before the first
        round; on all ranks that the session begins with, whatever their number was. The first
        exchange compares the weights, so ranks that have loaded different rounds are named.

        Args:
            state: what this rank saved, or a list of what all ranks saved, whatever their number.

        Raises:
            InvalidArgumentError: as `LocalSteps.load_state_dict`.
            DeltawireError: "State" in a process that has joined, or after the first round. Nothing
                is changed then, but the trainer is closed.
        """
        self._check_open()
        with self._aborting_on_error():
            if self.session.steps or self.session.joined_state is not None:
                raise wrong_state(
                    "a state can be loaded before the first round alone, and a process that joins "
                    "has that of the others; leave load_state_dict out"
                )
            own: dict = {}
            self._offered(state, own)
            self._exchange.load(own)
            self.round, self.local_steps = own["round"], own["local_steps"]
            under_way = own["under_way"] is not None  # committed, and not applied yet
            self._session.begin_at(self._exchange.progress.exchanges + under_way)

    def _count_step(self, steps: int) -> None:
        super()._count_step(steps)
        self._follow_session()

    def _begin(self, fragment: int, later: Sequence[int] | None = None) -> None:
        self._exchange.finish()
        progress = self._exchange.progress
        since = list(progress.since)
        self._opened = {
            "fragment": fragment,
            "later": later,
            "round": self.round,
            "local_steps": self.local_steps,
            "since": since,
        }
        own = since[fragment] - self._foreign[fragment]
        self._foreign[fragment] = 0
        self._session.weight = self._weight_of(own) if own else 0.0
        super()._begin(fragment, later)

    def _weight_of(self, steps: int) -> float:
        return check_weight(self._weight(steps)) if callable(self._weight) else self._weight

    def _follow_session(self) -> None:
        self.rank, self.world_size = self._session.place
        self._history.rank = self._number = self.rank

    # Called by the session's thread while an exchange is open, so that the common weights are those
    # that it began with.
    def _given(self) -> dict:
        # Last: buffers differ between ranks, and all before them is the same on all. The training
        # loop may change them meanwhile.
        buffers = {name: value.detach().clone() for name, value in self._buffers().items()}
        return packed({**self._weights.common(), "place": self._opened, "buffers": buffers})

    def _buffers(self) -> dict[str, torch.Tensor]:
        """And frozen parameters. A tensor of two names is there once."""
        exchanged = set(self._weights.names)
        every = [*self._model.named_parameters(), *self._model.named_buffers()]
        named = {wrappers.plain_name(name): value for name, value in every}
        return {name: value for name, value in named.items() if name not in exchanged}

    def _take_over(self, given: dict) -> None:
        """Makes another member's state this one's, and takes part in the exchange that is open."""
        place, progress = given["place"], self._exchange.progress
        fragment, later = place["fragment"], place["later"]
        numbers = {"exchanges": self.session.steps, "next": fragment, "since": place["since"]}
        progress.check_state(numbers)
        self._check_buffers(given["buffers"])
        self._weights.take_over(given)
        self._load_buffers(given["buffers"])
        progress.load(numbers)
        self._foreign = list(place["since"])
        self.round, self.local_steps = place["round"], place["local_steps"]
        if later is not None:
            self._end_with([fragment, *later])
            return
        steps = self._next_steps()
        while progress.next == fragment or progress.due(self.local_steps, steps):
            self._begin(progress.next)
            progress.next += 1
        if progress.round_is_over:
            self._end_round()

    def _check_buffers(self, given: dict[str, torch.Tensor]) -> None:
        """Raises DeltawireError unless these can be written to the model's, one after another."""
        buffers = self._buffers()
        if buffers.keys() != given.keys():
            raise mismatch("the other members' model has other buffers")
        for name, buffer in buffers.items():  # their shapes are those of the settings
            check_writable(name, buffer)

    @torch.no_grad()
    def _load_buffers(self, given: dict[str, torch.Tensor]) -> None:
        for name, buffer in self._buffers().items():
            buffer.copy_(given[name])
