"""Momentum masking: sets the momentum of the elements that a rank has just sent to 0."""

from collections.abc import Sequence

import torch

from deltawire import _core
from deltawire.errors import invalid, wrong_dtype
from deltawire.torch.core import arguments
from deltawire.torch.core.device import staging
from deltawire.torch.local.weights import Weights

# SGD and RMSprop; Adam, AdamW, NAdam, RAdam, Adamax.
DEFAULT_MOMENTUM = ("momentum_buffer", "exp_avg")


class Momentum:
    """Optimizers' momentum of the weights' parameters. Its state is looked up each time, because
    optimizers create it in their first step, and replace it when a state is loaded."""

    def __init__(
        self, optimizers: Sequence[torch.optim.Optimizer], weights: Weights, names: Sequence[str]
    ) -> None:
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise invalid(
                f"momentum={names!r} must be names of an optimizer's state, e.g. {DEFAULT_MOMENTUM}"
            )
        self._optimizers = optimizers
        self._weights = weights
        self._names = tuple(names)
        self._scratch = torch.empty(0, dtype=torch.float32, device="cpu")
        self._forced = staging.is_forced()

    def wanted(self, spec: _core.Spec, asked: bool | None, overlaps: bool) -> "Momentum | None":
        """Returns self if mask_momentum= of LocalSteps means that it is masked, else None. Raises
        InvalidArgumentError.

        Args:
            spec: as it was given, because a canonical text doesn't name a recipe.
            asked: mask_momentum=.
            overlaps: whether local steps are taken while an exchange is running.
        """
        arguments.check_kind("mask_momentum", asked, bool, "True, False")
        if overlaps and asked:
            raise invalid(
                "mask_momentum=True needs delay=0 and overlap=0: otherwise the momentum has gone "
                "on for some steps when it is known what was sent"
            )
        if asked is None:
            asked = not spec.keeps_inner_momentum
        masked = asked and not overlaps and self.can_be_masked(spec)
        return self if masked else None

    def can_be_masked(self, spec: _core.Spec) -> bool:
        """Whether the codec, or each rule's, selects elements at all. Raises if the pattern hides
        which."""
        sparse = all(rule.info.sparse for rule in spec.rules)
        if sparse and spec.sends_sums:
            raise invalid(
                f"{spec.text} sends partial sums, not what a rank has, so that momentum can't "
                "be masked; take gather or direct, or pass mask_momentum=False"
            )
        return sparse

    def tensors(self, fragment: int) -> list[tuple[str, torch.Tensor]]:
        """(parameter name, tensor) of all momentum that a fragment's parameters have now."""
        found = []
        for name, parameter in self._weights.named_parameters(fragment):
            states = (each.state.get(parameter) for each in self._optimizers)
            state = next(filter(None, states), {})
            for key in self._names:
                tensor = state.get(key)
                if tensor is not None:
                    _check_momentum(name, key, tensor, parameter)
                    found.append((name, tensor))
        return found

    @torch.no_grad()
    def mask(self, session: _core.Session, momenta: list[tuple[str, torch.Tensor]]) -> None:
        """Sets, in each tensor, the elements that the last round has sent to 0. Those of a device
        get a mask from the CPU, a tensor at a time."""
        for name, tensor in momenta:
            here = tensor.device.type == "cpu" and not self._forced
            flat = tensor.float().contiguous() if here else self._ones(tensor)
            session.mask_sent([(name, flat.data_ptr(), flat.nbytes, tuple(flat.shape))])
            if not here:
                tensor.masked_fill_((flat == 0).to(tensor.device), 0)
            elif flat is not tensor:
                tensor.copy_(flat)

    def _ones(self, like: torch.Tensor) -> torch.Tensor:
        """Ones of this shape on the CPU, in memory that is kept for the next tensor and round."""
        if self._scratch.numel() < like.numel():
            self._scratch = torch.empty(like.numel(), dtype=torch.float32, device="cpu")
        return self._scratch[: like.numel()].view(like.shape).fill_(1)


def _check_momentum(
    name: str, key: str, tensor: torch.Tensor, parameter: torch.nn.Parameter
) -> None:
    if (
        not isinstance(tensor, torch.Tensor)
        or tensor.dtype not in arguments.DTYPES
        or tensor.device.type not in arguments.DEVICES
        or tensor.shape != parameter.shape
    ):
        raise wrong_dtype(
            f"the optimizer's '{key}' of parameter '{name}' is not a tensor of its shape, of "
            "float32 or 16 bits, on the CPU or a CUDA device and can't be masked; pass other names "
            "as momentum=, or mask_momentum=False"
        )
