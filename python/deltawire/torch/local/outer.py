"""The outer optimizer of DiLoCo, whose gradient is the change in a round of local steps.

Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models" (2023),
algorithm 1; federated optimization with a server optimizer (Reddi et al., "Adaptive Federated
Optimization", ICLR 2021) has the same shape.
"""

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable, Sequence

import torch
from torch.utils._pytree import tree_flatten, tree_map_only

from deltawire.errors import invalid, wrong_type
from deltawire.torch.core.replica_check import digest_of_sums, sums_of

# Makes the optimizer that steps the common weights.
OuterFactory = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


class RisingSGD(torch.optim.Optimizer):
    """SGD without momentum, whose rate rises: for codecs that send few elements of a change. Some
    of what waits decays, and a high rate makes up for it; while a network first learns, it
    overshoots (docs/results/training/local-steps.md, "A rising outer rate").

    Args:
        params: the common weights.
        lr: the rate of a tensor after `rounds` steps of it.
        first: that of its first step, from which it rises by the same amount in each.
        rounds: 1 or more.
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float = 4.0,
        first: float = 1.0,
        rounds: int = 50,
    ) -> None:
        super().__init__(params, {"lr": lr, "first": first, "rounds": rounds})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Steps the weights that have a gradient."""
        for group in self.param_groups:
            first, rise = group["first"], group["lr"] - group["first"]
            for each in group["params"]:
                if each.grad is not None:
                    done = self.state[each].get("rounds", 0)
                    each.sub_(each.grad, alpha=first + rise * min(1.0, done / group["rounds"]))
                    self.state[each]["rounds"] = done + 1


# DiLoCo's own choice, section 3.1 and its table of hyperparameters; and one for sparse changes.
_NAMED: dict[str, OuterFactory] = {
    "nesterov": functools.partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True),
    "rising": RisingSGD,
}


def factory_of(outer: str | OuterFactory | None) -> OuterFactory | None:
    """The factory for LocalSteps' outer=. Raises InvalidArgumentError."""
    if isinstance(outer, str):
        if outer not in _NAMED:
            raise invalid(
                f"outer={outer!r} is not a name of an outer optimizer ({', '.join(_NAMED)}); {_HOW}"
            )
        return _NAMED[outer]
    if outer is None or (callable(outer) and not isinstance(outer, torch.optim.Optimizer)):
        return outer
    raise invalid(f"outer= is a {type(outer).__name__}; {_HOW}")


_HOW = (
    "give a function that makes a torch optimizer from the list of common weights, e.g. "
    "functools.partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)"
)


class Outer:
    """A torch optimizer of the common weights, which are equal on every rank.

    Attributes:
        optimizer: torch's. Every rank must apply the same schedule to its rate.
    """

    def __init__(self, factory: OuterFactory, weights: Sequence[torch.nn.Parameter]) -> None:
        self._weights = list(weights)
        self.optimizer = factory(list(weights))
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise wrong_type(f"outer= has made a {type(self.optimizer).__name__}; {_HOW}")
        given = [p for group in self.optimizer.param_groups for p in group["params"]]
        if sorted(map(id, given)) != sorted(map(id, self._weights)):
            raise invalid(
                f"outer= has made an optimizer of {len(given)} tensors and not of all "
                f"{len(self._weights)} that it was given, each once"
            )
        closure = inspect.signature(self.optimizer.step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            raise invalid(
                f"{type(self.optimizer).__name__} evaluates a loss in each step, and an outer step "
                f"has none; {_HOW}"
            )

    def __str__(self) -> str:
        """Class and settings, which are compared between ranks."""
        groups = [
            {key: value for key, value in group.items() if key != "params"}
            for group in self.optimizer.param_groups
        ]
        return f"{type(self.optimizer).__name__}{groups}"

    @torch.no_grad()
    def step(self, part: slice, means: Sequence[torch.Tensor]) -> None:
        """Steps a part of the weights. The outer gradient is minus the mean change (algorithm 1,
        line 12).

        Args:
            part: the slice of the weights.
            means: mean changes of the ranks' weights; overwritten.
        """
        weights = self._weights[part]
        torch._foreach_neg_(means)
        for weight, mean in zip(weights, means, strict=True):
            weight.grad = mean
        try:
            self.optimizer.step()
        finally:
            for weight in weights:
                weight.grad = None

    def state(self) -> dict:
        """A copy of the optimizer's state_dict, on the CPU."""
        return tree_map_only(torch.Tensor, host_copy, self.optimizer.state_dict())

    def check_state(self, state: object) -> None:
        """Raises InvalidArgumentError for a state of another optimizer or model."""
        own = self.optimizer.state_dict()
        groups = state.get("param_groups") if isinstance(state, dict) else None
        if not isinstance(groups, list) or not isinstance(state.get("state"), dict):
            raise invalid("the state's outer optimizer is damaged")
        if [g.get("params") for g in groups] != [g["params"] for g in own["param_groups"]] or any(
            given.keys() != kept.keys()
            for given, kept in zip(groups, own["param_groups"], strict=True)
        ):
            raise invalid(
                f"the state's outer optimizer is not a {type(self.optimizer).__name__} of "
                f"{len(self._weights)} tensors"
            )
        if not set(state["state"]) <= set(range(len(self._weights))):
            raise invalid("the state's outer optimizer is of another model's tensors")

    def load(self, state: dict) -> None:
        """Restores what `state()` returned, after `check_state`. The given tensors stay the
        caller's: torch would keep them, and change them in its next step."""
        self.optimizer.load_state_dict(tree_map_only(torch.Tensor, host_copy, state))


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU, wherever the tensor is: states go from one device to another."""
    return tensor.detach().to("cpu", copy=True)


def digest_of(weights: Sequence[torch.Tensor]) -> int:
    """A 64-bit digest of float32 weights, made of `sums_of`."""
    return digest_of_sums(sums_of(weights))


def state_digest(state: object) -> str:
    """A digest of every number and key in nested dicts and lists."""
    leaves, form = tree_flatten(state)
    values = hashlib.sha256(repr(form).encode())
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            values.update(leaf.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
        else:
            values.update(repr(leaf).encode())
    return values.hexdigest()[:16]
