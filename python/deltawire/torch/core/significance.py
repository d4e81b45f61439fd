"""The significance of gradients to a torch optimizer (GComp, table 2), bucket by bucket."""

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence

import torch

from deltawire import _core
from deltawire.errors import invalid, wrong_dtype
from deltawire.torch.core import arguments
from deltawire.torch.core.device.staging import Staging, is_forced
from deltawire.torch.core.optimizer_rules.lines import gradient_strides, in_memory_order, local_part
from deltawire.torch.core.optimizer_settings import KINDS, KNOWN, settings_of

logger = logging.getLogger("deltawire")


class SignificanceSource:
    """Computes, for the parameters of a bucket, how much can be cut from each gradient without a
    visible effect on the optimizer's next step: the significance. For sharded parameters it is that
    of this rank's rows, as steps are elementwise. On a GPU it is computed there, in the current
    stream, and stays there if the gradients are encoded there; else it is copied to pinned memory:
    as many bytes as the parameters in float32.

    Parameters that the optimizer steps in bfloat16 or float16 are rounded by every step, which
    hides more of a gradient: their significance is 65,536 or 8,192 times that of the same values in
    float32 (`deltawire.Optimizer.significance`, kept_as=). The moments, in the same 16 bits, get
    the cut gradients, too.

    The optimizer's param_groups and state are read again for every bucket, so that schedules,
    loaded states and added groups count. A parameter in no group has no significance, and nothing
    of its gradient is cut; the same before its optimizer has a second moment (in the first step).

    `maximize` and Adam's `amsgrad` are supported: they change the gradient's sign and the second
    moment. If gradients are scaled (by a GradScaler) or clipped later, less is cut than possible.

    Args:
        optimizer: torch.optim.SGD, Adagrad, RMSprop (neither centered nor with momentum), Adam or
            AdamW; no subclass, whose step may differ.

    Raises:
        DTypeError (a TypeError): not a torch optimizer, another one, or a subclass.
        InvalidArgumentError (a ValueError): a setting whose significance is not known.

    Thread rule: one thread at a time.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer = arguments.bare_optimizer(optimizer, "optimizer=")
        if type(optimizer) not in KINDS:
            raise wrong_dtype(
                f"optimizer={type(optimizer).__name__} is not supported: its significance is known "
                f"for {KNOWN} themselves, not for subclasses; leave optimizer out and nothing "
                "is cut"
            )
        self._optimizer = optimizer
        self._forced = is_forced()
        self._buffers: dict[Hashable, torch.Tensor] = {}  # by bucket; one in use is not in here
        for known, parameter in self._known_parameters():
            state = optimizer.state.get(parameter, {})
            _read_moments(*known, state, local_part(parameter), "a parameter")

    @property
    def name(self) -> str:
        """The optimizer's name, equal on ranks that use the same kind."""
        return type(self._optimizer).__name__

    def require_any_of(self, names: dict[int, str]) -> None:
        """Raises InvalidArgumentError if the optimizer steps none of these parameters (id -> name),
        DTypeError if one that it steps isn't float32, bfloat16 or float16 on the CPU or a CUDA
        device."""
        for _, parameter in self._known_parameters():
            if id(parameter) in names:
                _check_parameter(f"parameter '{names[id(parameter)]}'", local_part(parameter))
        arguments.check_held(self._optimizer, names)

    def of_bucket(
        self,
        staging: Staging,
        buffer: torch.Tensor,
        key: Hashable,
        tensors: Sequence[tuple[str, torch.Tensor]],
    ) -> tuple[list[int], Callable[[], None]]:
        """Computes a bucket's significance where the bucket is encoded, before its
        `Staging.load`. Returns (address of each parameter's significance, in the order of its
        gradient's memory; 0: none; what to call once the bucket's exchange is over, when the memory
        is free for its next step).

        Args:
            staging, buffer: of the bucket.
            key: identifies the bucket, whose memory is reused.
            tensors: (name, parameter) of each.

        Raises DTypeError if a moment isn't of the parameter's dtype on its device,
        InvalidArgumentError if a setting has become an unsupported one.
        """
        with staging.aside(buffer):
            memory, addresses = self._of_tensors(key, tensors, staging.coded_on(buffer))
        staging.lend(memory)

        def over() -> None:
            staging.release(memory)
            self._buffers[key] = memory

        return addresses, over

    def _of_tensors(
        self, key: Hashable, tensors: Sequence[tuple[str, torch.Tensor]], device: torch.device
    ) -> tuple[torch.Tensor, list[int]]:
        """(Memory on the device, addresses in it.) Of parameters on a GPU it is there when the
        current stream is done."""
        needed = sum(local_part(parameter).numel() for _, parameter in tensors)
        memory = self._buffers.pop(key, None)
        if memory is None or memory.numel() != needed:
            comes = any(local_part(parameter).device != device for _, parameter in tensors)
            memory = torch.empty(needed, dtype=torch.float32, device=device, pin_memory=comes)
        by_parameter = {id(parameter): known for known, parameter in self._known_parameters()}
        addresses, first = [], 0
        for name, parameter in tensors:
            here = local_part(parameter)
            out = memory[first : first + here.numel()]
            first += here.numel()
            known = by_parameter.get(id(parameter))
            if known is None or not here.numel():
                addresses.append(0)
                continue
            state = self._optimizer.state.get(parameter, {})
            self._write(_read_moments(*known, state, here, f"parameter '{name}'"), here, out)
            addresses.append(out.data_ptr())
        return memory, addresses

    def coming_step(self) -> Callable[[torch.Tensor, str], torch.Tensor]:
        """A function, valid now, from (parameter, its name in messages) to its significance: a new
        float32 tensor of its shape on its device, zeros for a parameter in no group. It raises
        DTypeError for parameters that aren't float32, bfloat16 or float16 on the CPU or a CUDA
        device, and for moments of another dtype or device than the parameter."""
        by_parameter = {id(parameter): known for known, parameter in self._known_parameters()}

        def significance(parameter: torch.Tensor, name: str) -> torch.Tensor:
            _check_parameter(name, parameter)
            out = torch.zeros(parameter.numel(), dtype=torch.float32, device=parameter.device)
            known = by_parameter.get(id(parameter))
            if known is not None:
                state = self._optimizer.state.get(parameter, {})
                self._write(_read_moments(*known, state, parameter, name), parameter, out)
            return out.as_strided(parameter.shape, gradient_strides(parameter))

        return significance

    @torch.no_grad()
    def _write(self, known: tuple, parameter: torch.Tensor, out: torch.Tensor) -> None:
        """Writes the significance of one parameter to `out`, in the order of its gradient's
        memory."""
        settings, steps, *moments = known
        strides = gradient_strides(parameter)
        theta, first, second = (
            None if values is None else in_memory_order(values, strides).to(torch.float32)
            for values in (parameter.detach(), *moments)
        )
        if parameter.device.type == "cpu" and not self._forced:
            arrays = (None if each is None else each.numpy() for each in (first, second))
            _core.significance(settings, theta.numpy(), steps, *arrays, out.numpy())
            _core.count_rounding_to(str(parameter.dtype).removeprefix("torch."), out.numpy())
        else:
            seen = on_device(settings, steps, theta, first, second)
            if parameter.dtype != torch.float32:
                seen.mul_(_ROUNDING[parameter.dtype])
            out.copy_(seen, non_blocking=True)

    def _known_parameters(self) -> Iterator[tuple[tuple, torch.Tensor]]:
        """((settings, moments), parameter) of every parameter in the current groups."""
        for group in self._optimizer.param_groups:
            known = _known_of(type(self._optimizer), group)
            for parameter in group["params"]:
                yield known, parameter


def significance_of(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> torch.Tensor:
    """The significance of the parameter's gradient to the optimizer's next step, as a new tensor of
    its shape; zeros (nothing may be cut) for a parameter in none of its groups. Raises like
    `SignificanceSource`. See `deltawire.Optimizer.significance`."""
    return SignificanceSource(optimizer).coming_step()(parameter, "the parameter")


def source_for(
    optimizers: Sequence[torch.optim.Optimizer],
    spec: _core.Spec,
    names: dict[int, str],
    has_other_use: bool = False,
) -> SignificanceSource | None:
    """The source for register's optimizer=: of several for the one whose significance is known.
    None without one, with a warning, on rank 0, if the codec would have used it.

    Args:
        names: id -> name of the parameters that are exchanged.
        has_other_use: the optimizer may be of no use for significance.

    Raises like `SignificanceSource` and `require_any_of`, and InvalidArgumentError for a codec that
    doesn't use significance.
    """
    if not optimizers:
        if spec.uses_significance and arguments.is_first():
            logger.warning(
                "'%s' cuts what the optimizer can't see of a gradient, but no optimizer= was "
                "given: nothing is cut",
                spec.given,
            )
        return None
    if has_other_use and not spec.uses_significance:
        return None
    known = [each for each in optimizers if type(each) in KINDS]
    if len(known) > 1:
        raise invalid(
            f"optimizer= has {len(known)} of {KNOWN}, and '{spec.given}' cuts what one can't see; "
            "give one optimizer with several param_groups"
        )
    source = SignificanceSource(known[0] if known else optimizers[0])
    source.require_any_of(names)
    arguments.require_use(spec, "optimizer=")
    return source


def _read_moments(settings, moments, state, parameter, name) -> tuple:
    """(settings, steps, first moment, second moment) of a parameter with this state, checked; None
    for a missing moment. Only this rank's rows."""
    first_name, second_name = moments
    steps = state.get("step", 0)
    if isinstance(steps, torch.Tensor) and steps.device.type != "cpu":
        raise wrong_dtype(
            f"the optimizer counts the steps of {name} on {steps.device}, and to read them the "
            "backward pass would wait for it; make the optimizer without fused=True and "
            "capturable=True, or leave optimizer= out"
        )
    if second_name == "exp_avg_sq" and "max_exp_avg_sq" in state:
        second_name = "max_exp_avg_sq"  # amsgrad divides by the largest so far
    found = []
    for key in (first_name, second_name):
        moment = state.get(key) if key else None
        if moment is not None:
            moment = local_part(moment)
            _check_tensor(f"the optimizer's {key} of {name}", moment, parameter)
        found.append(moment)
    return settings, int(steps), *found


def on_device(
    settings: _core.OptimizerSettings,
    steps: int,
    theta: torch.Tensor,
    first: torch.Tensor | None,
    second: torch.Tensor | None,
) -> torch.Tensor:
    """`_core.significance` of flat float32 tensors, by torch on their device: each operation rounds
    by itself, as there, so the bits are the same."""
    there = first is not None, second is not None
    coefficients = _core.significance_coefficients(settings, steps, *there)
    if coefficients is None:
        return torch.zeros_like(theta)
    plain, root, momentum = coefficients
    if second is None:
        out = theta * plain
    else:  # torch's root of float32 is not exact everywhere, and this one is, once it is rounded
        out = second.double().sqrt_().float().mul_(root).add_(plain).mul_(theta)
    if first is not None:
        out.add_(first * momentum)
    out.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    return out if second is None else out.masked_fill_(~(second > 0), 0.0)


# By how much the rounding of parameters to their dtype raises their significance, as
# `_core.count_rounding_to` knows it for tensors on the CPU.
_ROUNDING = {torch.float32: 1.0, torch.bfloat16: 2.0**16, torch.float16: 2.0**13}


def _check_parameter(what: str, parameter: torch.Tensor) -> None:
    if parameter.dtype not in _ROUNDING:
        raise wrong_dtype(
            f"{what} is {parameter.dtype}; what its steps see of a gradient is known for float32, "
            "bfloat16 and float16: convert it, or leave optimizer= out"
        )
    _check_tensor(what, parameter, parameter)


def _check_tensor(what: str, tensor: torch.Tensor, like: torch.Tensor) -> None:
    dense = tensor.layout == torch.strided
    if (
        not dense
        or tensor.dtype != like.dtype
        or tensor.device.type not in arguments.DEVICES
        or tensor.device != like.device
        or tensor.shape != like.shape
    ):
        kind = f"{'' if dense else 'sparse '}{tensor.dtype}"
        raise wrong_dtype(
            f"{what} is {kind} of shape {tuple(tensor.shape)} on {tensor.device} where "
            f"{like.dtype} of shape {tuple(like.shape)} {_place(like)} is due; keep parameters and "
            "the optimizer's state so, or leave optimizer= out"
        )


def _place(like: torch.Tensor) -> str:
    known = like.device.type in arguments.DEVICES
    return f"on {like.device}" if known else "on the CPU or a CUDA device"


def _known_of(kind: type[torch.optim.Optimizer], group: dict) -> tuple:
    """(settings, moments) of a group of parameters."""
    for name in ("centered", "momentum"):
        if kind is torch.optim.RMSprop and group[name]:
            raise invalid(
                f"RMSprop({name}={group[name]}) is not supported: what its step sees of a gradient "
                f"is known without {name} only; leave {name} out, or optimizer= (then nothing is "
                "cut)"
            )
    on_gpu = any(each.device.type == "cuda" for each in group["params"])
    if on_gpu and kind is not torch.optim.SGD and (group.get("fused") or group.get("capturable")):
        raise invalid(
            f"{kind.__name__} with fused=True or capturable=True counts its steps on the GPU, and "
            "the backward pass would wait for it; make it without, or leave optimizer= out"
        )
    settings = settings_of(kind, group)
    return settings, _MOMENTS[_core.NamedParameters(settings.spec, "optimizer").name]


# The keys of the first and the second moment in a parameter's state, by the core's name of the
# optimizer.
_MOMENTS = {
    "sgd": (None, None),
    **dict.fromkeys(("momentum", "nesterov"), ("momentum_buffer", None)),
    "adagrad": (None, "sum"),
    "rmsprop": (None, "square_avg"),
    **dict.fromkeys(("adam", "adamw"), ("exp_avg", "exp_avg_sq")),
}
