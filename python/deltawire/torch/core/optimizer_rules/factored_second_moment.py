"""Adam and AdamW whose second moment is that of exact gradients, by rows and columns.

Codecs that send a few values as large as the largest, and keep the rest for later steps, show
Adam's second moment rare spikes instead of the gradient's scale, and its steps become too short
(docs/results/training/late-codecs.md). So each rank sends the mean squares of its gradient's rows
and columns beside the coded gradient, and the second moment is the tensor of rank one that has them
(Shazeer and Stern: Adafactor, ICML 2018, section 3). For ranks whose gradients differ
independently, the mean of N ranks has 1 / N of their mean.
"""

import dataclasses
from collections.abc import Iterator

import torch

from deltawire import _core
from deltawire.errors import invalid
from deltawire.torch.core.optimizer_rules.lines import (
    Lines,
    in_memory_order,
    lines_of,
    local_part,
)
from deltawire.torch.core.optimizer_rules.rule import OptimizerRule
from deltawire.torch.core.optimizer_rules.tensors import CodedTensors

_TINY = torch.finfo(torch.float32).tiny
_REFUSED = ("amsgrad", "capturable", "differentiable")


@dataclasses.dataclass(frozen=True)
class Received:
    """What ranks have sent of one tensor's gradient beside it.

    Attributes:
        squares: estimate of the exact mean's mean squares, by lines.
        index, value: of the largest of the first elements of the decoded mean, in the order of
            memory. What the gradient has there in a step tells by how much it was scaled (clipped,
            unscaled) since, with an error of one rounding on every processor, as a norm would not.
    """

    squares: torch.Tensor
    index: torch.Tensor
    value: torch.Tensor


@dataclasses.dataclass
class _Known:
    """What is kept of a tensor from step to step, as long as the counter in the optimizer's state
    has this version: loading a state, or a step without the rule, changes it.

    Attributes:
        squares: means of the second moment, by lines, float32 whatever the parameter's dtype is.
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


class FactoredSecondMoment(OptimizerRule):
    """Steps the tensors of some codecs by Adam or AdamW with a factored second moment, and a lower
    beta1.

    In the optimizer's state are the true counter and moments, the second one of the parameter's
    shape and of rank one, from which a step without this rule may go on. From a second moment by
    elements, as such a step leaves it, the rule goes on with the means of its lines.

    Raises InvalidArgumentError for amsgrad, capturable and differentiable.

    Attributes:
        received: by id(parameter), of the last exchange; whoever exchanges sets it. Tensors without
            are stepped by their own gradient's mean squares.
        spec: of the exchange that it needs, for `Session.recode`.
    """

    _named = "factored second moment"

    def __init__(
        self, optimizer: torch.optim.Optimizer, coded: CodedTensors, advice: _core.OptimizerRule
    ) -> None:
        super().__init__(optimizer, coded, advice)
        self.received: dict[int, Received] = {}
        self.spec = coded.spec
        self._known: dict[int, _Known] = {}
        self._is_late = False
        for each in _REFUSED:
            if any(group.get(each) for group in optimizer.param_groups):
                raise invalid(
                    f"optimizer={type(optimizer).__name__} has {each}=True, with which the "
                    f"factored second moment that '{coded.codecs[0]}' needs is not known; make it "
                    'without, or give momentum="optimizer"'
                )

    def needs(self) -> set[int]:
        """id(parameter) of the tensors whose mean squares it needs in the coming step."""
        return self.held & self._coded.at(self.step).keys()

    @torch.no_grad()
    def scales_of(self, parameter: torch.Tensor, lines: Lines) -> torch.Tensor | None:
        """By what the rows of its gradient are divided while they are coded, float32: the roots of
        their second moments, relative to the largest, as they were after the last step, alike on
        all ranks. So a step sends what moves weights most, of whatever row; else rows with large
        gradients alone. None: one row, no second moment yet or not on all ranks, or a codec that
        wants none."""
        state = self._optimizer.state.get(parameter)
        if self._is_share or not (state and lines.columns and self._advice.least_scale):
            return None
        roots = lines.of(self._known_of(state, parameter, lines).squares)[0].sqrt()
        return roots.div_(roots.max().clamp_(min=_TINY)).clamp_(min=self._advice.least_scale)

    def begins_late(self, received: dict[int, Received]) -> None:
        """The first step comes before any mean squares have: they will be in `received`."""
        self.received, self._is_late = received, True

    def _way(self) -> str:
        return (
            "by a second moment of their exact gradients' rows and columns, because "
            f"'{self._coded.codecs[0]}' does not show Adam how large these are"
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
        return {"beta1": self._beta1(group), "factored_second_moment": True}

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
        weights, gradient = local_part(parameter), local_part(parameter.grad)
        lines = lines_of(weights)
        known = self._known_of(state, parameter, lines)
        known.counter += 1
        known.version, known.steps = known.counter._version, known.steps + 1
        beta1, beta2 = self._beta1(group), float(group["betas"][1])
        rate, decay = float(group["lr"]), group["weight_decay"]
        squares = self._squares_of(parameter, gradient, lines)
        decoupled = group.get("decoupled_weight_decay", isinstance(own, torch.optim.AdamW))
        if decay and decoupled:
            weights.mul_(1 - rate * decay)
        elif decay:  # Adam's is part of the gradient, and of its scale
            squares = squares + lines.means((weights * decay).square())
            gradient = gradient.add(weights, alpha=-decay if group["maximize"] else decay)
        first, second = local_part(state["exp_avg"]), local_part(state["exp_avg_sq"])
        first.lerp_(-gradient if group["maximize"] else gradient, 1 - beta1)
        is_exact = not self._is_late or id(parameter) in self.received
        known.add(squares, beta2, is_exact=is_exact)
        crossing = lines.crossing(known.squares)
        known.squares = lines.means_of(crossing)  # as a checkpoint gives them
        lines.spread(crossing, second)
        roots = (crossing / (1 - beta2**known.steps)).sqrt_()
        root = lines.outer(roots, torch.empty_like(weights, dtype=torch.float32))
        step = torch.div(first, root.add_(group["eps"]), out=root)
        self._add_bounded(weights, lines, step, 1 - beta1**known.steps, rate)

    def _add_bounded(
        self,
        weights: torch.Tensor,
        lines: Lines,
        step: torch.Tensor,
        correction: float,
        rate: float,
    ) -> None:
        """Subtracts `rate` times a step, yet to be divided by beta1's correction, of which no row's
        root mean square, and no element, is larger than the advice says."""
        advice = self._advice
        own = lines.root_mean_squares(weights).square_().mean().sqrt_()
        most = (own * (advice.most_change / max(rate, _TINY))).clamp_(min=advice.most_rms).float()
        lengths = lines.root_mean_squares(step).float()
        step.div_(lines.upright(torch.maximum(lengths, most * correction)))
        step.clamp_(-advice.longest_step, advice.longest_step)
        weights.addcmul_(step, most, value=-rate)

    def _known_of(self, state: dict, parameter: torch.Tensor, lines: Lines) -> _Known:
        counter = state["step"]
        known = self._known.get(id(parameter))
        if known is None or known.counter is not counter or known.version != counter._version:
            squares = lines.means_of(lines.found_in(local_part(state["exp_avg_sq"])))
            version = counter._version
            steps = int(counter)
            is_guess = self._is_late and steps == 1  # of Adam's own first step
            known = _Known(counter, version, steps, squares, is_guess)
            self._known[id(parameter)] = known
        return known

    def _squares_of(
        self, parameter: torch.Tensor, gradient: torch.Tensor, lines: Lines
    ) -> torch.Tensor:
        """The mean squares by lines of the gradient as it is now."""
        received = self.received.get(id(parameter))
        if received is None:
            return lines.means(gradient.float().square())
        value = received.value.float()
        now = in_memory_order(gradient, lines.strides).take(received.index).float()
        return received.squares * torch.where(value == 0, 1.0, now / value).square()


def _begin(state: dict, parameter: torch.Tensor, group: dict) -> None:
    """The state that torch's Adam begins with."""
    on = parameter.device if group.get("fused") else torch.device("cpu")
    wide = torch.get_default_dtype() == torch.float64 and not group.get("fused")
    dtype = torch.float64 if wide else torch.float32
    state["step"] = torch.zeros((), dtype=dtype, device=on)
    for moment in ("exp_avg", "exp_avg_sq"):
        state[moment] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
