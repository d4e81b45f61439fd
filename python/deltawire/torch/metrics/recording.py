"""trace(): records the gradients of a training run in a folder, for `deltawire.read_trace` and the
command-line tools (docs/reference/traces.md)."""

import logging
import math
import os
import shlex
import sys
from collections.abc import Container, Iterable, Iterator

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook

from deltawire.errors import DeltawireError, invalid, wrong_dtype
from deltawire.torch.core import arguments, wrappers
from deltawire.torch.core.significance import SignificanceSource
from deltawire.traces import TracedGradient, TracedTensor
from deltawire.traces.writer import TraceWriter

logger = logging.getLogger("deltawire")


def trace(
    model: torch.nn.Module,
    folder: str | os.PathLike[str],
    *,
    optimizer: torch.optim.Optimizer | None = None,
    steps: Iterable[int] | None = None,
    every: int | None = None,
    limit: int = 100,
    significance: bool | None = None,
    spec: str | None = None,
    name: str | None = None,
) -> "Recording":
    """Records the gradients of a training run as the optimizer gets them. One line before the first
    step::

        deltawire.torch.trace(model, "trace/", optimizer=optimizer, steps=[10, 100, 1000])

    They are read when `optimizer.step()` begins, already accumulated, clipped and unscaled. A
    GradScaler's scale is divided out (also for a fused optimizer, which would divide by it itself),
    and steps that it skips don't count. A loss scaled by hand leaves its gradients scaled. Weight
    decay and `maximize`, which the optimizer applies itself, are not included. With several ranks
    only rank 0 of the model's process group writes; under DistributedDataParallel it writes the
    mean over the ranks after the communication hook, that is after compression if a codec is
    registered.

    Args:
        model: the model whose parameters are recorded, with the names and in the order of
            named_parameters() at this moment. float32, or bfloat16 and float16, which are widened;
            on any device.
        folder: is created, or must be empty. After every recorded step it holds a complete trace up
            to that step, even if the program is killed.
        optimizer: the optimizer whose steps count; parameters that it doesn't step are not
            recorded. Default: the first one seen to step some of the model's parameters.
        steps: numbers of the steps to record: calls of optimizer.step() from now on, counted from
            1.
        every: record every n-th step instead: every=10 records 10, 20, 30 ...
        limit: the most steps that `every` records.
        significance: whether to record what the optimizer can see, too (see `SignificanceSource`),
            as of before the step. Default: where it is known, with a warning where it isn't. True:
            an error where it isn't.
        spec: a lossless codec, such as "gcomp:lossless=on", for smaller files.
        name: a description of the model and its data. Default: the model's class.

    Returns:
        The recording. It ends by itself after the last step; `remove()`, or leaving it as a context
        manager, ends it earlier.

    Raises:
        InvalidArgumentError (a ValueError): a folder that isn't empty, impossible steps, an
            optimizer with none of the model's parameters, a lossy spec.
        DTypeError (a TypeError): parameters of another dtype; a model whose gradients are sharded.
        DeltawireError ("Io"): the folder can't be created. From `optimizer.step()`: a step can't be
            written (disk full), which ends the recording; what was written remains.

    Thread rule: the hook runs in the thread of optimizer.step().
    """
    bare, group = wrappers.unwrapped(model)
    parameters = _parameters(bare)
    wanted = _wanted(steps, every, limit)
    if optimizer is not None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise wrong_dtype(
                f"optimizer= takes a torch.optim.Optimizer, not {type(optimizer).__name__}"
            )
        arguments.check_held(optimizer, map(id, parameters.values()))
    writer = None
    if not dist.is_available() or not dist.is_initialized() or dist.get_rank(group) == 0:
        tensors = [TracedTensor(name, tuple(each.shape)) for name, each in parameters.items()]
        words = {"model": name or type(bare).__name__, "command": shlex.join(sys.orig_argv)}
        writer = TraceWriter(folder, tensors, words, spec)
    return Recording(writer, parameters, optimizer, wanted, significance)


class Recording:
    """A running recording; made by `trace`.

    Attributes:
        steps_seen: calls of optimizer.step() so far.

    Thread rule: as `trace`; `remove` between steps.
    """

    def __init__(
        self,
        writer: TraceWriter | None,
        parameters: dict[str, torch.nn.Parameter],
        optimizer: torch.optim.Optimizer | None,
        wanted: tuple[Container[int], int],
        significance: bool | None,
    ) -> None:
        self.steps_seen = 0
        self._writer = writer
        self._parameters = parameters
        self._ids = {id(each) for each in parameters.values()}
        self._optimizer = optimizer
        self._wanted, self._last = wanted
        self._significance = significance
        self._warned = False
        self._handle = None
        self._ended = False
        if writer is None:
            return
        hook = torch.compiler.disable(self._before_step)
        if optimizer is None:
            self._handle = register_optimizer_step_pre_hook(hook)
        else:
            self._handle = optimizer.register_step_pre_hook(hook)

    @property
    def steps(self) -> tuple[int, ...]:
        """Numbers of the steps written so far; empty on ranks that write nothing."""
        return () if self._writer is None else self._writer.step_numbers

    @property
    def bytes_written(self) -> int:
        """Size of the files with arrays."""
        return 0 if self._writer is None else self._writer.bytes_written

    @property
    def active(self) -> bool:
        """Whether steps are still to be recorded here."""
        return self._handle is not None and not self._ended

    def remove(self) -> None:
        """Ends the recording. May be called again."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        state = "recording" if self.active else "ended"
        folder = "nowhere" if self._writer is None else self._writer.folder
        return f"<trace to {folder}: {len(self.steps)} of {self.steps_seen} steps, {state}>"

    @torch.no_grad()
    def _before_step(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
        if not self.active:
            return
        held = arguments.held_by(optimizer)
        overflowed = getattr(optimizer, "found_inf", None)  # a GradScaler tells a fused one to skip
        if not self._is_meant(optimizer, held) or (overflowed is not None and overflowed):
            return
        if len(args) > 1 and args[1] is not None or kwargs.get("closure") is not None:
            self.remove()
            raise invalid(
                f"{type(optimizer).__name__}.step(closure) makes gradients inside of the step, "
                "where they can't be recorded; call backward() before step(), or leave trace out"
            )
        self.steps_seen += 1
        if self.steps_seen in self._wanted:
            self._record(optimizer, held)
        # Taking the hook away now would break PyTorch's loop over all hooks of this step.
        self._ended = self.steps_seen >= self._last

    def _is_meant(self, optimizer: torch.optim.Optimizer, held: set[int]) -> bool:
        """Whether this optimizer's steps count: the given one's, or else those of the first that
        steps the model. Raises for a second one."""
        if optimizer is self._optimizer:
            return True
        if not held & self._ids:
            return False
        if self._optimizer is None:
            self._optimizer = optimizer
            return True
        self.remove()
        raise invalid(
            "two optimizers step the traced model; say by optimizer= whose steps are recorded"
        )

    def _record(self, optimizer: torch.optim.Optimizer, held: set[int]) -> None:
        try:
            if not self._writer.step_numbers:
                self._writer.words["optimizer"] = describe(optimizer)
            self._writer.add(self.steps_seen, self._gradients(optimizer, held))
        except DeltawireError:
            self.remove()
            raise

    def _gradients(
        self, optimizer: torch.optim.Optimizer, held: set[int]
    ) -> Iterator[TracedGradient | None]:
        """Yields one for each parameter, so that they are not in memory all at once."""
        significance = self._significance_of(optimizer)
        # A GradScaler hands it to a fused optimizer, which divides in its kernel.
        scale = getattr(optimizer, "grad_scale", None)
        for name, parameter in self._parameters.items():
            if parameter.grad is None or id(parameter) not in held:
                yield None
                continue
            seen = None if significance is None else significance(parameter, name)
            yield _traced(name, parameter, scale, seen)

    def _significance_of(self, optimizer: torch.optim.Optimizer):
        """A function from (parameter, its name) to the significance, or to None where it isn't
        known. None if no significance is recorded."""
        if self._significance is False:
            return None
        try:
            known = SignificanceSource(optimizer).coming_step()
        except DeltawireError as cause:
            self._warn_or_raise(cause)
            return None

        def significance(parameter: torch.Tensor, name: str) -> torch.Tensor | None:
            try:
                return known(parameter, f"parameter '{name}'").cpu()
            except DeltawireError as cause:
                self._warn_or_raise(cause)
                return None

        return significance

    def _warn_or_raise(self, cause: DeltawireError) -> None:
        if self._significance:
            raise cause
        if not self._warned:
            self._warned = True
            logger.warning("trace: significance is not recorded everywhere: %s", cause)


def _wanted(
    steps: Iterable[int] | None, every: int | None, limit: int
) -> tuple[Container[int], int]:
    """The steps to record, and the last of them. Raises InvalidArgumentError for steps that can't
    be meant."""
    if (steps is None) == (every is None):
        raise invalid(
            "say which steps are recorded: steps=[10, 100, 1000], or every=10 (one of them)"
        )
    numbers = [every, limit] if steps is None else list(steps)
    if not numbers or not all(type(each) is int and each >= 1 for each in numbers):
        raise invalid(
            f"steps={steps}, every={every}, limit={limit}: numbers of steps are whole, from 1, "
            "and at least one"
        )
    if steps is not None:
        return frozenset(numbers), max(numbers)
    return range(every, every * limit + 1, every), every * limit


def describe(optimizer: torch.optim.Optimizer) -> str:
    """Describes an optimizer by its first group's settings that differ from "off": "SGD, lr=0.1,
    momentum=0.9"."""
    words = [type(optimizer).__name__]
    for name in optimizer.defaults:
        value = optimizer.param_groups[0].get(name)
        value = value.item() if isinstance(value, torch.Tensor) else value
        if value is not None and value != 0:
            words.append(f"{name}={value}")
    if len(optimizer.param_groups) > 1:
        words.append(f"the first of {len(optimizer.param_groups)} groups")
    return ", ".join(words)


def _parameters(bare: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    found = {wrappers.plain_name(name): each for name, each in bare.named_parameters()}
    if not found:
        raise invalid("the model has no parameters to trace")
    for name, each in found.items():
        if torch.nn.parameter.is_lazy(each):
            raise invalid(f"parameter '{name}' has no shape yet; run one forward pass before trace")
        if each.requires_grad:
            _check_widens(f"parameter '{name}'", each)
    return found


def _check_widens(what: str, tensor: torch.Tensor) -> None:
    if tensor.dtype not in arguments.DTYPES:
        raise wrong_dtype(
            f"{what} is {tensor.dtype}; a trace holds float32, and what widens to it without a "
            "loss (bfloat16, float16)"
        )


def _traced(
    name: str,
    parameter: torch.nn.Parameter,
    scale: torch.Tensor | None,
    significance: torch.Tensor | None,
) -> TracedGradient:
    """The parameter's gradient as a trace holds it: float32 on the CPU, sparse ones as pairs.

    Args:
        name, parameter: whose gradient.
        scale: divides it; None: 1.
        significance: of the parameter's shape; a sparse gradient keeps that of its keys only.

    Raises DTypeError if float32 can't hold it, and for layouts other than strided and COO.
    """
    gradient = parameter.grad.detach()
    _check_widens(f"the gradient of '{name}'", gradient)
    if gradient.layout not in (torch.strided, torch.sparse_coo):
        raise wrong_dtype(
            f"the gradient of '{name}' has the layout {gradient.layout}; a trace takes strided "
            "ones, and sparse ones of COO"
        )
    tensor = TracedTensor(name, tuple(parameter.shape))
    if gradient.layout == torch.strided:
        seen = None if significance is None else significance.contiguous().numpy()
        return TracedGradient(tensor, _floats(gradient, scale).numpy(), None, seen)
    keys, values = _pairs(gradient)
    seen = None if significance is None else significance.reshape(-1)[keys].numpy()
    return TracedGradient(tensor, _floats(values, scale).numpy(), keys.numpy(), seen)


def _floats(values: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """The values divided by the scale: float32, contiguous, on the CPU."""
    values = values.to("cpu", torch.float32)
    if scale is not None:
        values = values * scale.to("cpu", torch.float64).reciprocal().to(torch.float32)
    return values.contiguous()


def _pairs(gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(ascending keys in C order, their values), on the CPU. An embedding's rows come whole."""
    gradient = gradient.coalesce()
    sparse = gradient.sparse_dim()
    row_count = math.prod(gradient.shape[sparse:])
    rows = torch.zeros(gradient.indices().shape[1], dtype=torch.int64, device="cpu")
    for indices, extent in zip(gradient.indices().cpu(), gradient.shape[:sparse], strict=True):
        rows = rows * extent + indices
    within = torch.arange(row_count, dtype=torch.int64, device="cpu")
    keys = rows[:, None] * row_count + within
    return keys.reshape(-1), gradient.values().reshape(-1)
