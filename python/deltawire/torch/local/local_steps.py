"""Local steps over a process group: each rank trains alone for a while, then the ranks exchange the
changes of their weights."""

import functools
import logging
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging.averagers import ModelAverager
from typing_extensions import Unpack

from deltawire.session.terms import Terms
from deltawire.torch.core import arguments, bootstrap, wrappers
from deltawire.torch.core.checkpoint import collective_load
from deltawire.torch.core.device.choice import Twins
from deltawire.torch.core.module_parameters import layout, share_model
from deltawire.torch.local.exchange import LocalExchange, who_codes
from deltawire.torch.local.momentum import DEFAULT_MOMENTUM, Momentum
from deltawire.torch.local.outer import OuterFactory, factory_of
from deltawire.torch.local.overlap import Overlap
from deltawire.torch.local.trainer import CODECS_OF_ROUNDS, LocalTrainer, Steps
from deltawire.torch.local.weights import Weights

_BUCKET_BYTES = 25 << 20

logger = logging.getLogger("deltawire")


class LocalSteps(LocalTrainer):
    """One rank's local steps and rounds; made on every rank at the same time::

        trainer = deltawire.torch.LocalSteps(model, optimizer, steps=10, reducer="sbc:p=1%")
        for x, y in batches:
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            trainer.step()
        trainer.exchange()

    A round follows `steps` local steps: the change of each parameter since the last round is
    averaged over the ranks through the reducer, which also adds what it left out before (its
    residual). The new weights, `weights of the last round + mean`, are bit-equal on every rank.
    Every rank's change has the same weight in the mean, however many steps it took.

    Args:
        model: the bare module, compiled or not, without DistributedDataParallel or anything else
            that exchanges by itself. Its parameters that require gradients (float32, bfloat16 or
            float16, each on the CPU or any CUDA device) are exchanged, and their set and devices
            must not change. Changes of 16-bit parameters are sent and summed as float32. At the
            start all parameters and buffers are set to rank 0's, as with DDP. Afterwards each rank
            has its own buffers (BatchNorm statistics): a lossy mean could make a variance negative.
            Frozen parameters keep their values.
        optimizer: any torch.optim.Optimizer whose parameters are the model's, or a list of those
            that step it together (Muon and AdamW).
        reducer: codec, e.g. "sbc:p=1%", or pattern and codec, "gather(sbc)", or rules, as for
            `register`; equal on all ranks. "pulseloco" sends what the next forward pass would see.
        steps: local steps a round, 1 or more, equal on all ranks; or a function of the round's
            number (0, 1, ...), which may return different numbers on different ranks. See `steps`
            below.
        outer: an outer optimizer (DiLoCo). It steps the weights of the last round with minus the
            mean change as the gradient, instead of adding the mean. A function that makes any torch
            optimizer from a list of parameters, e.g. functools.partial(torch.optim.SGD, lr=0.7,
            momentum=0.9, nesterov=True), or "nesterov", which stands for that one. With a codec
            that sends most of a change later (sbc, topk, sparseloco), "rising", which is
            `RisingSGD`, or SGD without momentum; of one rank 0 warns (MomentumWarning).
        delay: 1: a round's exchange overlaps the local steps of the next round, and its result is
            applied when those end. The rank's own change meanwhile is kept on top of it, and sent
            in the next round (as in CoCoD-SGD: Shen et al., IJCAI 2019), so that the ranks' weights
            are equal only after `exchange()`. 0: the ranks wait for the exchange.
        overlap: local steps that an exchange may take (tau of Streaming DiLoCo: Douillard et al.,
            2025): its result is applied after them, or when the next exchange begins, if that is
            earlier. 0: `delay` says when. Not with delay=1.
        mixing: with `overlap` or delay=1, the share of a rank's own weights that is kept when a
            result is applied, 0 <= mixing < 1: they become mixing * own + (1 - mixing) * common
            (alpha of Streaming DiLoCo). None: the rank's own change meanwhile is kept on top of the
            common weights. In either case `exchange()` makes all ranks' weights equal.
        fragments: number of fragments of about the same size into which the model's layers are cut.
            Each is exchanged once a round, at evenly spread steps, the last one at the round's end
            (Streaming DiLoCo): the same bytes, but only 1 / fragments of them at a time. With
            delay=1 each overlaps the steps until the next one.
        min_elements: parameters below this many elements travel uncompressed; equal on all ranks.
        timeout: seconds for a bucket of a round, from when all ranks have arrived, before the ranks
            give up and name the culprit; also how long a rank may be silent, and how long a device
            may take to finish the local steps that it was given.
        arrival_timeout: seconds that the ranks wait for one that is alive but has not arrived: how
            much longer one rank's local steps may take than another's. At least `timeout`. Default:
            the group's timeout.
        connection: `interface`, `port`, `token`, `encryption`, `link`, `carrier` and
            `connect_timeout`, as for `register`; but with encryption="required" rank 0's weights
            are not sent to the others, since the process group would carry them in the clear: all
            ranks must begin with equal ones.
        mask_momentum: whether momentum of the elements that this rank has sent is set to 0 after a
            round, so that it doesn't repeat a change that was just sent (momentum masking;
            supplement A of the paper). Only sparse codecs are affected. Default: yes, but not with
            `overlap` or delay=1, where momentum has already changed when the result is applied, nor
            with the recipes "sparseloco", "muloco" and "pulseloco", whose papers don't mask.
        momentum: the names under which the optimizer's state keeps momentum. The default covers
            SGD, RMSprop ("momentum_buffer") and the Adam family ("exp_avg").
        bucket_bytes: changes are exchanged in buckets of about this size; equal on all ranks.
        threads: as for `register`.
        twins: True: changes of weights on a GPU are encoded and decoded there, by the codecs'
            twins, as for `register`.
        group: the process group. Default: the world. A single rank is allowed: its changes pass
            through the codec, but no network.

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
        outer: the outer torch optimizer, or None. Every rank must apply the same schedule to its
            rate: the next round compares the weights, and fails ("Mismatch") if they differ.
        round: finished rounds; with delay=1 or `overlap` the last one's exchange may still run.
        local_steps: steps since the last round.

    Weight changes have no loss scale, so there is no scaler=. A change that isn't finite fails the
    round ("NotFinite") on every rank, with codecs that carry only finite values. Skip local steps
    with such gradients: `GradScaler.unscale_` and `clip_grad_norm_` detect them.

    A failed round raises the typed DeltawireError from `step` or `exchange`, on every rank; with
    delay=1 or `overlap` from a later call, which may be `close`. The parameters then have the
    values of this rank's local steps; residuals and reference are those before the round, so that
    `state_dict` loses nothing. The trainer is closed; make a new one to continue. It can't be
    copied or pickled (TypeError): save its `state_dict`. The model can.

    Memory: reference weights, weight changes, and two residuals with error feedback: four times the
    parameters as float32, five times for 16-bit parameters; plus an outer optimizer's state (SGD's
    momentum: once), and with delay=1 or `overlap` three times a fragment. For a model on a device
    all of this is there, except the residuals; the CPU also has a pinned copy of the largest
    fragment's changes, kept from round to round, which torch rounds up to a power of two. With
    `twins` the residuals are on the device, too, and pinned memory has the messages of a bucket.
    The outer optimizer runs on the device, so all ranks need the same kind of device. Thread rule:
    one thread; metrics, step_records and last_error: any.
    """

    _name = "LocalSteps"
    _nonfinite_advice = "LocalSteps lets none pass: skip local steps whose gradients are not finite"

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
        min_elements: int = 256,
        timeout: float = 120.0,
        arrival_timeout: float | None = None,
        mask_momentum: bool | None = None,
        momentum: Sequence[str] = DEFAULT_MOMENTUM,
        bucket_bytes: int = _BUCKET_BYTES,
        threads: int | None = None,
        twins: Twins = False,
        group: dist.ProcessGroup | None = None,
        **connection: Unpack[arguments.ConnectionKeywords],
    ) -> None:
        reached = arguments.Connection.of("LocalSteps", connection)
        self.group = bootstrap.given_or_world(group)
        with bootstrap.Meeting(self.group, arguments.device_near(model)) as meeting:
            spec = arguments.spec_of(arguments.named(reducer, "LocalSteps", CODECS_OF_ROUNDS))
            wrappers.check_bare(model)
            optimizers = arguments.optimizers_of(model, optimizer)
            arguments.check_positive("bucket_bytes", bucket_bytes)
            weights = Weights(model, bucket_bytes, fragments, factory_of(outer), spec.holds_back)
            arguments.warn_of_rules_without_tensor(spec, weights.names, meeting.place[0])
            overlaps = Overlap(delay, overlap, mixing)
            masked = Momentum(optimizers, weights, momentum)
            masked = masked.wanted(spec, mask_momentum, bool(overlaps))
            timeout_ms = arguments.timeout_in_ms(timeout)
            choice = who_codes(weights, twins, spec, timeout_ms, meeting.place[0])
            # "fold" would count a failed round's changes twice: the weights still have them.
            coding = arguments.Coding(min_elements, threads)
            options = coding.options(choice.parts)
            arguments.check_reducer(spec.text, options)
            exchange = LocalExchange(weights, masked, overlaps, timeout_ms, choice)
            super().__init__(optimizers, steps, weights, exchange)
            settings = coding.terms(spec.text) | {"bucket_bytes": bucket_bytes}
            settings |= self._settings() | {"carrier": reached.carrier}
            meeting.agree_on(Terms("LocalSteps", layout(model), **settings))
            arrival_ms = arguments.arrival_timeout_in_ms(arrival_timeout, self.group)
            meeting.listen(reached)
        session = meeting.connect(spec, options, arrival_ms)
        self._connect(session, meeting.place, self.group, meeting.carrier)
        with self._aborting_on_error():
            share_model(model, self.group, meeting.encryption)
        self._weights.start_from_here()
        choice.log(self.rank)
        if self.rank == 0:
            self._announce(spec.text, masked is not None)

    def load_state_dict(self, state: dict | Sequence[dict]) -> None:
        """Restores what `state_dict` returned, including the model's parameters, on every rank or
        on none. A collective on the process group: call it on all ranks.

        Args:
            state: what this rank saved, or a list of what all ranks saved, whatever their number:
                see `Hook.load_state_dict`.

        Raises InvalidArgumentError for a state of another rank, world size, spec, version, model,
        outer optimizer or number of fragments; DeltawireError for damaged bytes, if another rank
        could not load ("Aborted"), or if states are from different rounds ("Mismatch"). Nothing is
        changed then.
        """
        self._check_open()
        with self._aborting_on_error():
            self._exchange.finish()
        own: dict = {}
        offer = functools.partial(self._offered, state, own)
        collective_load(self.group, self._session, offer, self.device)
        self._exchange.load(own)
        self.round, self.local_steps = own["round"], own["local_steps"]

    def _announce(self, spec: str, masked: bool) -> None:
        """Logs one line about the rounds, and warns of momentum."""
        weights, steps = self._weights, self._steps
        kinds = " and ".join(type(each).__name__ for each in self._optimizers)
        often = "a scheduled number of steps" if callable(steps) else f"{steps} steps"
        outer = type(weights.outer.optimizer).__name__ if weights.outer else "none"
        logger.info(
            "%s steps %d tensors on each rank; after %s their changes are exchanged by %s; outer "
            "optimizer: %s; momentum of what was sent %s",
            *(kinds, len(weights.names), often, spec, outer),
            "becomes 0" if masked else "is kept",
        )
        self._warn_of_momentum(stacklevel=4)


class Averager(ModelAverager):
    """Replaces torch's PeriodicModelAverager, in PostLocalSGDOptimizer or called after each
    optimizer.step(): post-local SGD (Lin et al., "Don't Use Large Mini-Batches, Use Local SGD",
    ICLR 2020) with compressed rounds.

    A round ends after the trainer's `steps` local steps: the first after warmup_steps + steps, then
    every `steps`. torch's averager averages first one step after the warm-up, then every period,
    that is `steps` - 1 steps earlier each time.

    Args:
        trainer: the LocalSteps whose rounds it runs, with the local optimizer.
        warmup_steps: number of steps at the start in which it exchanges nothing, because
            DistributedDataParallel averages the gradients of all ranks: start_localSGD_iter of
            PostLocalSGDState. Local steps start from the resulting weights, which the first round
            compares between ranks. Equal on all ranks.

    Make it on every rank of the trainer's group at the same time, a collective. Raises
    InvalidArgumentError (a ValueError) for a bad number of steps; DeltawireError, alike on every
    rank, if ranks give different ones ("Mismatch") or one could not take part ("Aborted").

    Attributes:
        trainer: as given.
        step: steps so far, for PostLocalSGDOptimizer's state_dict. The trainer has its own.
    """

    def __init__(self, trainer: LocalSteps, warmup_steps: int = 0) -> None:
        if not isinstance(trainer, LocalSteps):
            raise TypeError(f"Averager takes a LocalSteps, not {type(trainer).__name__}")
        with bootstrap.Meeting(trainer.group, trainer.device) as meeting:
            arguments.check_count("warmup_steps", warmup_steps)
            meeting.agree_on(Terms("Averager", warmup_steps=warmup_steps))
        super().__init__(trainer.group)
        self.trainer = trainer
        self._warmup_steps = warmup_steps

    def average_parameters(self, params: object = None) -> None:
        """Call it after each step of the local optimizer. `params` is ignored: the trainer has its
        own. Raises like LocalSteps.step."""
        if self.step >= self._warmup_steps:
            self.trainer.stepped()
        elif self.step == self._warmup_steps - 1:
            self.trainer.start_from_here()
        self.step += 1
