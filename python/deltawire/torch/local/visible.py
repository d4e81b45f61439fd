"""PULSELoCo: of a change is sent what the next forward pass would see; the rest waits.

Miahi and Belilovsky, "Understanding and Exploiting Weight Update Sparsity for
Communication-Efficient Distributed RL" (arXiv 2602.03839, 2026), from its abstract
(docs/reference/errata.md).
"""

from collections.abc import Sequence

import torch


def seen_as(parameter: torch.Tensor) -> torch.dtype:
    """The dtype in which a forward pass sees a parameter: its own if that has 16 bits, else
    bfloat16, as mixed precision has it."""
    return torch.bfloat16 if parameter.dtype == torch.float32 else parameter.dtype


class Held:
    """What each parameter's changes hold back, in float32, on its device. A round replaces it when
    it is applied; one that fails leaves it as it was.

    Args:
        parameters: of the model.
    """

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._dtypes = [seen_as(p) for p in parameters]
        self._now = [torch.zeros_like(p, dtype=torch.float32) for p in parameters]
        self._next: dict[int, torch.Tensor] = {}

    def cut(
        self, part: slice, weights: Sequence[torch.Tensor], changes: Sequence[torch.Tensor]
    ) -> None:
        """Adds what was held back to the changes of some parameters, and sets those to 0 that are
        not visible.

        Args:
            part: the slice of the parameters.
            weights: the common ones, float32.
            changes: float32; overwritten.
        """
        for i, weight, change in zip(range(part.start, part.stop), weights, changes, strict=True):
            change += self._now[i]
            seen = (weight + change).to(self._dtypes[i]) != weight.to(self._dtypes[i])
            self._next[i] = change.masked_fill(seen, 0)
            change.masked_fill_(~seen, 0)

    def apply(self, part: slice) -> None:
        """The round of these parameters was applied."""
        for i in range(part.start, part.stop):
            self._now[i] = self._next.pop(i, self._now[i])

    def values(self, part: slice | None) -> list[torch.Tensor]:
        """What is held back when the running round of some parameters is applied; None: no round is
        running."""
        running = range(part.start, part.stop) if part else ()
        return [
            self._next.get(i, held) if i in running else held for i, held in enumerate(self._now)
        ]

    def load(self, held: Sequence[torch.Tensor]) -> None:
        """Restores what `values` returned."""
        self._next.clear()
        torch._foreach_copy_(self._now, list(held))
