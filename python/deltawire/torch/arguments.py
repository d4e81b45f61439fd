"""Checks of the arguments that every way to exchange through deltawire takes."""

import torch
import torch.distributed as dist

from deltawire.arguments import (
    check_count,
    check_link,
    check_positive,
    ports,
    reducer_options,
    secret,
    timeout_in_ms,
)
from deltawire.errors import DTypeError, make_error

__all__ = [
    "arrival_timeout_in_ms",
    "check_count",
    "check_link",
    "check_optimizer",
    "check_parameter",
    "check_positive",
    "ports",
    "reducer_options",
    "secret",
    "timeout_in_ms",
]


def arrival_timeout_in_ms(seconds: float | None, group: dist.ProcessGroup) -> int:
    """The group's own timeout where `seconds` is None; raises InvalidArgumentError."""
    if seconds is None:
        seconds = group._get_backend(torch.device("cpu")).options._timeout.total_seconds()
    return timeout_in_ms(min(seconds, 86_400), "arrival_timeout")


def check_parameter(name: str, parameter: torch.Tensor) -> None:
    """Raises DTypeError for a parameter that can't be exchanged."""
    if hasattr(parameter, "device_mesh"):
        raise DTypeError(
            f"parameter '{name}' is a {type(parameter).__name__}, spread over ranks; deltawire "
            "exchanges whole parameters: leave fully_shard and tensor parallelism out",
            "UnsupportedDType",
        )
    if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
        raise DTypeError(
            f"parameter '{name}' is {parameter.dtype} on {parameter.device}; deltawire "
            "exchanges float32 parameters on the CPU: convert the model with .float() and "
            ".cpu() first",
            "UnsupportedDType",
        )


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
