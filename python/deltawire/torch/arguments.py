"""Checks of the arguments that every way to exchange through deltawire takes."""

import math
import os
import re

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.errors import DTypeError, make_error

_SECRET_BYTES = 16
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_DEVICES = ("cpu", "cuda")


def reducer_options(
    min_elements: int, revert: str, threads: int | None, nonfinite: str = "error"
) -> _core.ReducerOptions:
    """How residuals, small tensors and overflows are treated, and by how many threads; raises
    InvalidArgumentError.
    """
    check_count("min_elements", min_elements)
    if threads is not None:
        check_positive("threads", threads)
    return _core.ReducerOptions(min_elements, str(revert), threads or 0, str(nonfinite))


def check_link(link: _core.LinkShape | None) -> None:
    """Raises TypeError for anything but a link's shape or None."""
    if link is not None and not isinstance(link, _core.LinkShape):
        raise TypeError(f"link must be a deltawire.LinkShape or None, not {type(link).__name__}")


def timeout_in_ms(seconds: float, name: str = "timeout") -> int:
    """Whole milliseconds, at least one; raises InvalidArgumentError."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise make_error("InvalidArgument", f"{name}={seconds!r} must be a number of seconds")
    if not (0 < seconds <= 86_400) or math.isnan(seconds):
        raise make_error("InvalidArgument", f"{name}={seconds} must be 0 < seconds <= 86,400")
    return max(1, round(1e3 * seconds))


def arrival_timeout_in_ms(seconds: float | None, group: dist.ProcessGroup) -> int:
    """The group's own timeout where `seconds` is None; raises InvalidArgumentError."""
    if seconds is None:
        backend = group._get_backend(device_of(group))
        seconds = backend.options._timeout.total_seconds()
    return timeout_in_ms(min(seconds, 86_400), "arrival_timeout")


def device_of(group: dist.ProcessGroup) -> torch.device:
    """Of tensors that the group's collectives take: the CPU, but for groups of GPUs alone."""
    if any(device.type == "cpu" for device in group._device_types):
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def ports(port: int | str | None) -> tuple[int, int]:
    """First and last port of a range such as "29600-29699", of DELTAWIRE_PORT where `port` is None;
    (0, 0) is any free one. Raises InvalidArgumentError."""
    source = "port"
    if port is None:
        source, port = "DELTAWIRE_PORT", os.environ.get("DELTAWIRE_PORT", 0)
    found = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", str(port), re.ASCII)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (-1, -1)
    if not (1 <= first <= last <= 65_535 or first == last == 0):
        raise make_error(
            "InvalidArgument",
            f'{source}={port!r} must be a port such as 29600, a range such as "29600-29699" with '
            "a port for every rank of this machine, or 0 for any free one",
        )
    return first, last


def secret(token: str | bytes | None) -> bytes | None:
    """The bytes of `token`, of DELTAWIRE_TOKEN where it is None; None where neither is set. Raises
    InvalidArgumentError."""
    if token is None:
        token = os.environ.get("DELTAWIRE_TOKEN")
    if token is None:
        return None
    if isinstance(token, str):
        token = os.fsencode(token)
    if not isinstance(token, bytes) or len(token) < _SECRET_BYTES:
        raise make_error(
            "InvalidArgument",
            f"the token (token= or DELTAWIRE_TOKEN) must be text or bytes, {_SECRET_BYTES} bytes "
            "or more, hard to guess: make one with `openssl rand -hex 32`",
        )
    return token


def dtype_name(tensor: torch.Tensor) -> str:
    """As the core calls it, "bfloat16" for instance."""
    return str(tensor.dtype).removeprefix("torch.")


def check_tensor(what: str, tensor: torch.Tensor) -> None:
    """Raises DTypeError for a dtype or a device whose tensors can't be exchanged."""
    if tensor.dtype not in _DTYPES:
        raise DTypeError(
            f"{what} is {tensor.dtype}; deltawire exchanges float32, bfloat16 and float16: convert "
            "the model with .float() first",
            "UnsupportedDType",
        )
    if tensor.device.type not in _DEVICES:
        raise DTypeError(
            f"{what} is on {tensor.device}; deltawire exchanges tensors of the CPU and of CUDA "
            "devices: move the model with .cpu() first",
            "UnsupportedDType",
        )


def check_parameter(name: str, parameter: torch.Tensor) -> None:
    """Raises DTypeError for a parameter whose gradients can't be exchanged."""
    _check_whole(name, parameter)
    check_tensor(f"parameter '{name}'", parameter)


def check_weights(name: str, parameter: torch.Tensor) -> None:
    """Raises DTypeError for a parameter that `LocalSteps` can't exchange."""
    _check_whole(name, parameter)
    if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
        raise DTypeError(
            f"parameter '{name}' is {parameter.dtype} on {parameter.device}; LocalSteps exchanges "
            "float32 parameters on the CPU: convert the model with .float() and .cpu() first (with "
            "autocast for a forward pass of 16 bits)",
            "UnsupportedDType",
        )


def _check_whole(name: str, parameter: torch.Tensor) -> None:
    if hasattr(parameter, "device_mesh"):
        raise DTypeError(
            f"parameter '{name}' is a {type(parameter).__name__}, spread over ranks; deltawire "
            "exchanges whole parameters: leave fully_shard and tensor parallelism out",
            "UnsupportedDType",
        )


def check_positive(name: str, value: int) -> None:
    """Raises InvalidArgumentError for anything but a whole number, 1 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise make_error("InvalidArgument", f"{name}={value!r} must be a whole number, 1 or more")


def check_count(name: str, value: int) -> None:
    """Raises InvalidArgumentError for anything but a whole number, 0 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise make_error("InvalidArgument", f"{name}={value!r} must be a whole number, 0 or more")


def check_optimizer(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> None:
    """Raises where `optimizer` isn't one, or has parameters that aren't the model's."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise DTypeError(
            f"LocalSteps takes a torch.optim.Optimizer, not {type(optimizer).__name__}",
            "InvalidArgument",
        )
    known = {id(parameter) for parameter in model.parameters()}
    for number, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            if id(parameter) not in known:
                raise make_error(
                    "InvalidArgument",
                    f"the optimizer's group {number} has a parameter of shape "
                    f"{tuple(parameter.shape)} that isn't the model's and would not be exchanged; "
                    "make the optimizer from model.parameters()",
                )
