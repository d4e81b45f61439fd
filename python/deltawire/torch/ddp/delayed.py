"""Means that DDP gets one step after their gradients."""

import torch
import torch.distributed as dist

from deltawire.errors import make_error
from deltawire.late_codecs import late_rules
from deltawire.torch.core.backward_pass import after_backward, in_backward
from deltawire.torch.core.settings import Settings
from deltawire.torch.core.staging import Staging
from deltawire.torch.ddp.bucket import PendingBucket
from deltawire.torch.ddp.parameters import DDPParameters


class DelayedMeans:
    """Exchanges a step's gradients while the next step is computed, and gives DDP the previous
    step's means; zeros in the first step.

    With momentum of 0.9, SGD is stable at a fortieth of its usual learning rate if gradients come
    a step late. So each rank computes its gradients not at the weights, which lack the mean that is
    on its way, but where the optimizer would take them with the rank's own gradient in place of
    that mean; after the backward pass the weights are back, bit for bit. These are the points of
    delayed gradient averaging (Zhu et al., NeurIPS 2021), where a rank applies its own gradient at
    once and the difference to the mean later; but here the replicas remain equal.

    Memory: four copies of the gradients and one of the weights.

    Thread rule: `turn` belongs to the thread of backward; everything else to the training loop,
    `before_forward` in a step and the rest between steps.

    Args:
        optimizer: the one that steps the model.
        parameters: those that are exchanged.
    """

    def __init__(self, optimizer: torch.optim.SGD, parameters: DDPParameters) -> None:
        self._ahead = LookAhead(optimizer)
        self._parameters = parameters
        self._copies: tuple[dict, dict] = ({}, {})  # of this step and of the one before, by bucket
        self._before, self._now = _Exchange(), _Exchange()

    def before_forward(self) -> None:
        """Moves the weights ahead, until the end of the step's backward pass."""
        self._ahead.go({key: own for key, (_, own) in self._now.of.items()})

    def turn(
        self, staging: Staging, bucket: dist.GradBucket
    ) -> tuple[PendingBucket, "DelayedBucket"]:
        """Takes a bucket's gradients out of DDP's memory. Returns the bucket to exchange, and the
        one that DDP waits for, which has the previous step's means."""
        if bucket.index() == 0:
            self._before, self._now = self._now, _Exchange()
            self._copies = self._copies[::-1]
            if in_backward():
                after_backward(self._ahead.come_back)
            else:  # in DDP's join()
                self._ahead.come_back()
        parameters, buffer = bucket.parameters(), bucket.buffer()
        copy = self._copies[0].get(bucket.index())
        if copy is None or not copy.fits(buffer, parameters):
            copy = _Copy(buffer, parameters, bucket.gradients())
            self._copies[0][bucket.index()] = copy
        copy.take(buffer)
        pending = PendingBucket(staging, bucket, copy.values)
        self._now.add(pending, copy)
        return pending, DelayedBucket(bucket, self._before)

    def settle(self, waits: bool = True) -> None:
        """Restores weights that a failed step has left ahead, and waits until the last exchange is
        over, at the latest by its deadline."""
        self._ahead.come_back()
        if waits and self._now.over is not None:
            self._now.over.wait()

    def finish(self) -> bool:
        """Puts the last step's means into the parameters' gradients; False if there are none. The
        next step then begins as the first one does. Raises what ended the exchange."""
        self.settle()
        last, self._now = self._now, _Exchange()
        if last.error is not None:
            raise last.error
        if last.is_cut_short:
            raise make_error(
                "State",
                "the last backward pass was cut short, so that its means never came; register a "
                "new DDP model",
            )
        if not last.of:
            return False
        for parameter in self._parameters.all:
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            last.put([parameter], [parameter.grad])
        return True

    def state(self) -> dict[str, dict[str, torch.Tensor]]:
        """Means that are not used yet, and this rank's own gradients in them, by name; empty before
        the first step and after a failure."""
        self.settle()
        found: dict[str, dict[str, torch.Tensor]] = {"means": {}, "own": {}}
        if self._now.error is not None or self._now.is_cut_short:
            return found
        for parameter in self._parameters.all:
            if id(parameter) in self._now.of:
                mean, own = self._now.of[id(parameter)]
                name = self._parameters.name_of(parameter)
                found["means"][name], found["own"][name] = mean.clone(), own.clone()
        return found

    def check_state(self, state: object) -> None:
        """Raises InvalidArgumentError unless `load` can take it."""
        kinds = list(state.values()) if isinstance(state, dict) else []
        complete = len(kinds) == 2 and {"means", "own"} == set(state)
        if not complete or not all(isinstance(kind, dict) for kind in kinds):
            raise make_error("InvalidArgument", "the state's delayed means are damaged")
        if set(kinds[0]) != set(kinds[1]):
            raise make_error("InvalidArgument", "the state's delayed means are not complete")
        shapes = {self._parameters.name_of(each): each.shape for each in self._parameters.all}
        for name, tensor in [item for kind in kinds for item in kind.items()]:
            if not isinstance(tensor, torch.Tensor) or shapes.get(name) != tensor.shape:
                raise make_error("InvalidArgument", f"the state's delayed means don't fit '{name}'")

    def load(self, state: dict) -> None:
        """Restores what `state` returned. REQUIRES: check_state."""
        self._now = _Exchange()
        for parameter in self._parameters.all:
            name = self._parameters.name_of(parameter)
            if name in state["means"]:
                mean, own = state["means"][name].clone(), state["own"][name].clone()
                self._now.of[id(parameter)] = mean, own


class LookAhead:
    """Weights for a while where a step of the optimizer would take them."""

    def __init__(self, optimizer: torch.optim.SGD) -> None:
        self._optimizer = optimizer
        self._memory: dict[torch.Tensor, torch.Tensor] = {}  # by parameter
        self._moved: list[torch.Tensor] = []  # parameters that are ahead

    @torch.no_grad()
    def go(self, gradients: dict[int, torch.Tensor]) -> None:
        """Takes the step with these gradients, by id(parameter), unless it is ahead already."""
        if self._moved:
            return
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in gradients:
                    if parameter not in self._memory:
                        self._memory[parameter] = torch.empty_like(parameter)
                    self._memory[parameter].copy_(parameter)
                    self._moved.append(parameter)
                    self._step(group, parameter, gradients[id(parameter)])

    def _step(self, group: dict, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """torch.optim.SGD's, which leaves the optimizer's own state alone."""
        momentum = group["momentum"]
        change = gradient + group["weight_decay"] * parameter
        velocity = self._optimizer.state.get(parameter, {}).get("momentum_buffer")
        if momentum and velocity is not None:
            faster = momentum * velocity + (1 - group["dampening"]) * change
            change = change + momentum * faster if group["nesterov"] else faster
        elif group["nesterov"]:
            change = change + momentum * change
        parameter.sub_(change, alpha=float(group["lr"]))

    @torch.no_grad()
    def come_back(self) -> None:
        """Back to the weights that it left, exactly."""
        for parameter in self._moved:
            parameter.copy_(self._memory[parameter])
        self._moved = []


class DelayedBucket:
    """A bucket that DDP waits for, while its own gradients are exchanged for the next step.
    Attributes as in `PendingBucket`; `error` is that of the previous step."""

    def __init__(self, bucket: dist.GradBucket, before: "_Exchange") -> None:
        self.index, self.last = bucket.index(), bucket.is_last()
        self.raises = True
        self.error: BaseException | None = None
        self._buffer = bucket.buffer()
        parameters, gradients = bucket.parameters(), bucket.gradients()

        def fill(_: torch.futures.Future) -> torch.Tensor:
            try:
                self.error = before.error
                if self.error is None:
                    before.put(parameters, gradients)
            except Exception as cause:
                self.error = cause
            return self._buffer

        over = before.over
        if over is None:
            over = torch.futures.Future()
            over.set_result(None)
        self.exchanged = over.then(fill)

    def mean(self, exchanged: torch.futures.Future) -> torch.Tensor:
        """As `PendingBucket.mean`."""
        if self.error is not None and self.raises:
            raise self.error
        return exchanged.value()


class _Exchange:
    """The exchange of a step.

    Attributes:
        over: a Future that completes, without error, when all buckets have ended; None before the
            last one has begun, and if there is nothing to wait for.
        of: id(parameter) -> its mean, once it is over, and this rank's gradient.
    """

    def __init__(self) -> None:
        self.over: torch.futures.Future | None = None
        self.of: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._buckets: list[PendingBucket] = []

    @property
    def error(self) -> BaseException | None:
        """Why there are no means, once it is over."""
        return next((each.error for each in self._buckets if each.error is not None), None)

    @property
    def is_cut_short(self) -> bool:
        """Whether its last bucket has not begun, and never will between steps."""
        return bool(self._buckets) and self.over is None

    def put(self, parameters: list, into: list[torch.Tensor]) -> None:
        """Fills `into`, tensors like the parameters, with means; zeros where there are none."""
        for parameter, target in zip(parameters, into, strict=True):
            if id(parameter) in self.of:
                target.copy_(self.of[id(parameter)][0])
            else:
                target.zero_()

    def add(self, pending: PendingBucket, copy: "_Copy") -> None:
        """A bucket whose exchange begins."""
        self._buckets.append(pending)
        for parameter, *both in zip(copy.parameters, copy.gradients, copy.own, strict=True):
            self.of[id(parameter)] = both[0], both[1]
        if pending.last:
            self.over = torch.futures.collect_all([each.exchanged for each in self._buckets])


class _Copy:
    """Memory for a bucket's gradients, laid out as DDP's.

    Attributes:
        values, gradients: as a whole and by parameter: the gradients, then the means.
        own: the gradients, by parameter.
    """

    def __init__(self, buffer: torch.Tensor, parameters: list, gradients: list) -> None:
        self.parameters = parameters
        self.values, self._kept = torch.empty_like(buffer), torch.empty_like(buffer)
        first = buffer.storage_offset()
        self.gradients, self.own = (
            [
                memory.as_strided(each.shape, each.stride(), each.storage_offset() - first)
                for each in gradients
            ]
            for memory in (self.values, self._kept)
        )

    def fits(self, buffer: torch.Tensor, parameters: list) -> bool:
        """Whether it has the layout of this bucket: DDP makes its buckets anew after a step."""
        same = len(parameters) == len(self.parameters) and self.values.shape == buffer.shape
        return same and all(map(lambda a, b: a is b, parameters, self.parameters))

    def take(self, buffer: torch.Tensor) -> None:
        """Copies the gradients."""
        self.values.copy_(buffer)
        self._kept.copy_(buffer)


def delayed_for(
    given: Settings, spec: str, parameters: DDPParameters, finds_unused: bool
) -> DelayedMeans | None:
    """The `DelayedMeans` for the `delay` of `register`; None: no delay.

    Args:
        spec: the canonical one.
        finds_unused: DDP's find_unused_parameters.

    Raises InvalidArgumentError for invalid values, and for anything that does not go with a delay.
    """
    given.check_delay()
    if not given.delay:
        return None
    refused = {
        "scaler=": given.scaler is not None,
        'nonfinite="pass"': given.nonfinite == "pass",
        "twins": bool(given.twins),
        "a codec that sends most of a gradient in later steps": bool(late_rules(spec)),
        "sparse gradients": bool(parameters.sparse),
        "find_unused_parameters=True": finds_unused,  # DDP drops means of what a step doesn't use
        "a model on a device": any(each.type != "cpu" for each in parameters.devices),
    }
    for what, is_there in refused.items():
        if is_there:
            raise make_error(
                "InvalidArgument", f"delay=1 does not go with {what}; leave one of them out"
            )
    sgd = given.optimizer
    if type(sgd) is not torch.optim.SGD or any(each["maximize"] for each in sgd.param_groups):
        raise make_error(
            "InvalidArgument",
            "delay=1 needs optimizer=, the model's torch.optim.SGD without maximize: gradients are "
            "computed where it would take the weights, without which a delay makes it diverge",
        )
    held = {id(each) for group in sgd.param_groups for each in group["params"]}
    missing = [name for key, name in parameters.names.items() if key not in held]
    if missing:
        raise make_error(
            "InvalidArgument",
            f"optimizer=SGD does not hold parameter '{missing[0]}'; pass the optimizer that steps "
            "this model",
        )
    return DelayedMeans(sgd, parameters)
