"""The mean squares of gradients' lines, which travel beside a bucket."""

import dataclasses
from collections.abc import Callable, Hashable, Sequence

import torch

from deltawire.errors import invalid
from deltawire.torch.core.device.staging import Staging
from deltawire.torch.core.optimizer_rules.factored_second_moment import Received
from deltawire.torch.core.optimizer_rules.lines import Lines, lines_of, local_part
from deltawire.torch.core.optimizer_rules.momentum_choice import OptimizerRules

# Elements of a mean on the CPU among which the largest is looked for first.
_LOOKED_AT = 1 << 14


class LineEnergies:
    """Sends the mean squares of exact gradients, by rows and columns, with each bucket, for rules
    of optimizers, by which it scales rows while they are coded.

    They are tensors of their own in the bucket, in bfloat16 and of fewer than `min_elements`
    elements, so that they travel as they are, and every rank gets the same mean of them. A gradient
    is exact before the residual is added to it; it has its loss scale.

    Thread rule: `of_bucket` belongs to the thread of backward; what it returns, to the session's.

    Raises InvalidArgumentError for min_elements below 2.
    """

    def __init__(self, rules: OptimizerRules, min_elements: int, world_size: int) -> None:
        if min_elements < 2:
            raise invalid(
                f"min_elements={min_elements} leaves nothing that travels as it is, as the mean "
                f"squares must that {rules.name} needs; give 2 or more"
            )
        self._rules, self._most, self._world_size = rules, min_elements - 1, world_size
        self._buffers: dict[Hashable, torch.Tensor] = {}  # by bucket; one in use is not in here

    @torch.no_grad()
    def of_bucket(
        self,
        staging: Staging,
        buffer: torch.Tensor,
        key: int,
        gradients: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]],
    ) -> "Beside | None":
        """Computes those of a bucket before its `Staging.load`, and divides its rows by the rules'
        scales until the exchange is over; None if it has no such tensor.

        Args:
            staging, buffer: of the bucket.
            key: identifies the bucket, whose memory is reused.
            gradients: (parameter, its part of the buffer, what the mean will be added to or None)
                of each tensor of the bucket.
        """
        needed = self._rules.needs()
        parts, count = [], 0
        for parameter, values, before in gradients:
            if id(parameter) in needed and values.numel():
                lines = lines_of(local_part(parameter))
                at, count = slice(count, count + lines.count), count + lines.count
                parts.append(_Part(parameter, lines, at, values, before))
        if not parts:
            return None
        memory = self._memory(key, count, staging, buffer)
        with staging.aside(buffer):
            here = torch.empty(count, dtype=torch.float32, device=buffer.device)
            for part in parts:
                part.lines.mean_squares(part.values, here[part.at])
                if part.values.dtype != torch.float16:  # whose range is too small for it
                    part.divide(self._rules.scales_of(part.parameter, part.lines))
            memory.copy_(here, non_blocking=True)
        staging.lend(memory)

        def end(arrived: bool) -> None:
            with staging.returning(buffer):
                for part in parts:
                    part.multiply()
                if arrived:
                    self._receive(parts, memory)
            staging.release(memory)
            self._buffers[key] = memory

        return Beside(self._tensors(key, memory), end)

    def _memory(
        self, key: Hashable, count: int, staging: Staging, buffer: torch.Tensor
    ) -> torch.Tensor:
        device = staging.coded_on(buffer)
        memory = self._buffers.pop(key, None)
        if memory is None or memory.numel() != count or memory.device != device:
            comes = buffer.device != device
            memory = torch.empty(count, dtype=torch.bfloat16, device=device, pin_memory=comes)
        return memory

    def _tensors(self, key: int, memory: torch.Tensor) -> list[tuple]:
        """(name, address, bytes, shape, dtype) of each piece of the memory."""
        pieces = memory.split(self._most)
        return [
            (
                f"mean squares of bucket {key}, {i + 1} of {len(pieces)}: {len(piece)}",
                piece.data_ptr(),
                piece.nbytes,
                (len(piece),),
                "bfloat16",
            )
            for i, piece in enumerate(pieces)
        ]

    @torch.no_grad()
    def _receive(self, parts: list["_Part"], memory: torch.Tensor) -> None:
        """Hands the means to the rule, once those of the gradients are in the bucket."""
        device = parts[0].values.device
        # A mean of N gradients that differ independently has 1 / N of their mean squares.
        squares = memory.to(device, torch.float32, non_blocking=True) / self._world_size
        for part in parts:
            key, mine = id(part.parameter), squares[part.at]
            index = _index_of_largest(part.values)
            value = part.values.take(index)
            if part.before is not None:
                mine = mine + self._rules.received[key].squares
                value = value + part.before.reshape(-1).take(index)
            self._rules.received[key] = Received(mine, index, value)


@dataclasses.dataclass
class _Part:
    """A tensor of a bucket: where its mean squares are in the memory, and its own part of it."""

    parameter: torch.Tensor
    lines: Lines
    at: slice
    values: torch.Tensor
    before: torch.Tensor | None
    scales: torch.Tensor | None = None

    def divide(self, scales: torch.Tensor | None) -> None:
        self.scales = scales
        if scales is not None:
            self.values.view(len(scales), -1).div_(scales.view(-1, 1))

    @torch.no_grad()
    def multiply(self) -> None:
        """Undoes it."""
        if self.scales is not None:
            if self.scales.device.type != "cpu":  # they may be of another stream
                self.scales.record_stream(torch.cuda.current_stream(self.scales.device))
            self.values.view(len(self.scales), -1).mul_(self.scales.view(-1, 1))


@dataclasses.dataclass(frozen=True)
class Beside:
    """What travels beside one bucket.

    Attributes:
        tensors: (name, address, bytes, shape, dtype) of each.
        end: to be called once the exchange is over, with whether the means are in the bucket.
    """

    tensors: list[tuple]
    end: Callable[[bool], None]


def _index_of_largest(values: torch.Tensor) -> torch.Tensor:
    """Of one of the first elements, or of any if they are all 0."""
    if values.device.type != "cpu":  # where reading one would wait
        return values.abs().argmax().view(1)
    index = values[:_LOOKED_AT].abs().argmax().view(1)
    if values.numel() > _LOOKED_AT and not values.take(index):
        index = values.abs().argmax().view(1)
    return index
