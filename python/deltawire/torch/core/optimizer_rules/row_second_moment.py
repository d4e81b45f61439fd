"""Adam and AdamW whose second moment is that of exact gradients, by rows.

Codecs that send a few values as large as the largest, and keep the rest for later steps, show
Adam's second moment rare spikes instead of the gradient's scale, and its steps become too short
(docs/results/training/late-codecs.md). So each rank sends the mean squares of its gradient's rows
beside the coded gradient. For ranks whose gradients differ independently, the mean of N ranks has
1 / N of their mean.
"""

import dataclasses
from collections.abc import Iterator

import torch

from deltawire import _core
from deltawire.errors import invalid
from deltawire.torch.core.optimizer_rules.rows import (
    gradient_strides,
    in_memory_order,
    local_part,
    means_of_rows,
    row_count,
    spread,
)
from deltawire.torch.core.optimizer_rules.rule import OptimizerRule
from deltawire.torch.core.optimizer_rules.tensors import CodedTensors

_TINY = torch.finfo(torch.float32).tiny
_REFUSED = ("amsgrad", "capturable", "differentiable")


@dataclasses.dataclass(frozen=True)
class Received:
    """What ranks have sent of one tensor's gradient beside it.

    Attributes:
        squares: estimate of the exact mean's mean squares, by rows.
        index, value: of the largest of the first elements of the decoded mean, in the order of
            memory. What the gradient has there in a step tells by how much it was scaled (clipped,
            unscaled) since, with an error of one rounding on every processor, as a norm would not.
    """

    squares: torch.Tensor
    index: torch.Tensor
    value: torch.Tensor

    def scaled_as(self, gradient: torch.Tensor) -> torch.Tensor:
        """The squares of a gradient (flat, in the order of memory) that was scaled."""
        value = self.value.float()
        factor = torch.where(value == 0, 1.0, gradient.take(self.index).float() / value)
        return self.squares * factor.square()


@dataclasses.dataclass
class _Known:
    """What is kept of a tensor from step to step, as long as the counter in the optimizer's state
    has this version: loading a state, or a step without the rule, changes it.

    Attributes:
        squares: the second moment by rows, float32 whatever the parameter's dtype is.
        is_guess: whether it is that of decoded gradients.
    """

    counter: torch.Tensor
    version: int
    steps: int
    squares: torch.Tensor
    is_guess: bool = False

    def add(self, squares: torch.Tensor, beta2: float, *, is_exact: bool) -> None:
        """Counts a step's mean squares in. Those of decoded gradients count only where there are no
        others, and the first exact ones take their place."""
        before = 1 - beta2 ** (self.steps - 1)
        self.is_guess |= self.steps == 1 and not is_exact
        if self.is_guess and is_exact:
            self.squares, self.is_guess = squares * before, False
        elif not (self.is_guess or is_exact):
            squares = self.squares / before
        self.squares.mul_(beta2).add_(squares, alpha=1 - beta2)


class RowSecondMoment(OptimizerRule):
    """Steps the tensors of some codecs by Adam or AdamW with a second moment by rows, and a lower
    beta1.

    In the optimizer's state are the true counter and moments, the second one of the parameter's
    shape and constant within a row, from which a step without this rule may go on. From a second
    moment by elements, as such a step leaves it, the rule goes on with the means of its rows.

    Raises InvalidArgumentError for amsgrad, capturable and differentiable.

    Attributes:
        received: by id(parameter), of the last exchange; whoever exchanges sets it. Tensors without
            are stepped by their own gradient's mean squares.
        pull: how fine it needs means to be, for `Session.refine_means`.
    """

    _named = "second moment by scaled rows"

    def __init__(
        self, optimizer: torch.optim.Optimizer, coded: CodedTensors, advice: _core.OptimizerRule
    ) -> None:
        super().__init__(optimizer, coded, advice)
        self.received: dict[int, Received] = {}
        self.pull = advice.pull
        self._known: dict[int, _Known] = {}
        self._is_late = False
        for each in _REFUSED:
            if any(group.get(each) for group in optimizer.param_groups):
                raise invalid(
                    f"optimizer={type(optimizer).__name__} has {each}=True, with which the second "
                    f"moment by rows that '{coded.codecs[0]}' needs is not known; make it without, "
                    'or give momentum="optimizer"'
                )

    def needs(self) -> set[int]:
        """id(parameter) of the tensors whose mean squares it needs in the coming step."""
        return self.held & self._coded.at(self.step).keys()

    @torch.no_grad()
    def scales_of(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """By what the rows of its gradient are divided while they are coded, float32: the roots of
        their second moments, relative to the largest, as they were after the last step, alike on
        all ranks. So a step sends what moves weights most, of whatever row; else rows with large
        gradients alone. None: one row, no second moment yet, or a codec that wants none."""
        state = self._optimizer.state.get(parameter)
        if not (state and self._advice.least_scale):
            return None
        roots = self._known_of(state, parameter).squares.sqrt()
        if len(roots) == 1:
            return None
        return roots.div_(roots.max().clamp_(min=_TINY)).clamp_(min=self._advice.least_scale)

    def begins_late(self, received: dict[int, Received]) -> None:
        """The first step comes before any mean squares have: they will be in `received`."""
        self.received, self._is_late = received, True

    def _way(self) -> str:
        return (
            f"by a second moment of their exact gradients' rows, because '{self._coded.codecs[0]}' "
            "does not show Adam how large these are"
        )

    def _applies_to(self, group: dict) -> bool:
        return True

    def _change(self, group: dict) -> str:
        beta1 = float(group["betas"][0])
        most = self._advice.beta1
        return f"beta1={beta1:g} {f'becomes {most:g}' if beta1 > most else 'stays'}"

    def _beta1(self, group: dict) -> float:
        """At most the advice's: a codec with feedback delays a gradient already."""
        return min(float(group["betas"][0]), self._advice.beta1)

    def _shown(self, group: dict, step: int) -> dict[str, float]:
        return {"beta1": self._beta1(group), "second_moment_by_rows": True}

    def _parts(
        self, own: torch.optim.Optimizer, group: dict, coded: dict[int, str]
    ) -> Iterator[dict]:
        others = [each for each in group["params"] if id(each) not in coded]
        ours = [each for each in group["params"] if id(each) in coded and each.grad is not None]
        # A fused step that a GradScaler skips.
        overflow = getattr(own, "found_inf", None)
        if ours and (overflow is None or not overflow.item()):
            scale = getattr(own, "grad_scale", None)
            for each in ours:
                if scale is not None:  # by a GradScaler, which leaves it to a fused step
                    local_part(each.grad).div_(scale.to(each.grad.device))
                self._step(own, group, each)
        if others:
            yield {**group, "params": others}

    @torch.no_grad()
    def _step(self, own: torch.optim.Optimizer, group: dict, parameter: torch.Tensor) -> None:
        state = own.state[parameter]
        if not state:
            _begin(state, parameter, group)
        known = self._at_next_step(state, parameter)
        beta1, beta2 = self._beta1(group), float(group["betas"][1])
        rate, decay = float(group["lr"]), group["weight_decay"]
        weights, gradient = local_part(parameter), local_part(parameter.grad)
        squares = self._squares_of(parameter, gradient)
        if decay and _is_decoupled(own, group):
            weights.mul_(1 - rate * decay)
        elif decay:  # Adam's is part of the gradient, and of its scale
            squares = squares + means_of_rows((weights * decay).square(), len(squares))
            gradient = gradient.add(weights, alpha=-decay if group["maximize"] else decay)
        first, second = local_part(state["exp_avg"]), local_part(state["exp_avg_sq"])
        first.lerp_(-gradient if group["maximize"] else gradient, 1 - beta1)
        is_exact = not self._is_late or id(parameter) in self.received
        known.add(squares, beta2, is_exact=is_exact)
        corrected = known.squares / (1 - beta2**known.steps)
        root = spread(corrected.sqrt_().add_(group["eps"]), weights)
        step = first / (1 - beta1**known.steps) / root
        weights.sub_(self._bounded(step, len(known.squares)), alpha=rate)
        second.copy_(spread(known.squares, second))

    def _bounded(self, step: torch.Tensor, rows: int) -> torch.Tensor:
        """In place: no row's root mean square, and no element, is larger than the advice says."""
        most, longest = self._advice.most_rms, self._advice.longest_step
        excess = means_of_rows(step.square(), rows).sqrt_().div_(most).clamp_(min=1)
        return step.div_(spread(excess, step)).clamp_(-longest, longest)

    def _at_next_step(self, state: dict, parameter: torch.Tensor) -> _Known:
        """What is known of the parameter, with the coming step counted."""
        known = self._known_of(state, parameter)
        known.counter += 1
        known.version, known.steps = known.counter._version, known.steps + 1
        return known

    def _known_of(self, state: dict, parameter: torch.Tensor) -> _Known:
        counter = state["step"]
        known = self._known.get(id(parameter))
        if known is None or known.counter is not counter or known.version != counter._version:
            count = row_count(local_part(parameter))
            squares = means_of_rows(local_part(state["exp_avg_sq"]), count)
            version = counter._version
            known = self._known[id(parameter)] = _Known(counter, version, int(counter), squares)
        return known

    def _squares_of(self, parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The mean squares by rows of the gradient as it is now."""
        here, received = local_part(parameter), self.received.get(id(parameter))
        if received is None:
            return means_of_rows(gradient.float().square(), row_count(here))
        return received.scaled_as(in_memory_order(gradient, gradient_strides(here)))


def _begin(state: dict, parameter: torch.Tensor, group: dict) -> None:
    """The state that torch's Adam begins with."""
    on = parameter.device if group.get("fused") else torch.device("cpu")
    wide = torch.get_default_dtype() == torch.float64 and not group.get("fused")
    dtype = torch.float64 if wide else torch.float32
    state["step"] = torch.zeros((), dtype=dtype, device=on)
    for moment in ("exp_avg", "exp_avg_sq"):
        state[moment] = torch.zeros_like(parameter, memory_format=torch.preserve_format)


def _is_decoupled(own: torch.optim.Optimizer, group: dict) -> bool:
    return group.get("decoupled_weight_decay", isinstance(own, torch.optim.AdamW))
