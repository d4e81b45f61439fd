"""Versions of a small language model, as fine-tuning publishes them.

A byte-level transformer learns WikiText-2's validation text, and then goes on with Shakespeare at a
small rate. Its weights stay float32; what is published is rounded from them.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch.nn import functional

from lab.data.images import data_folder, read_packed
from lab.models.networks import CharacterTransformer

_BYTE_VALUES = 256
_LENGTH = 64
_BATCH = 8
_BASE_RATES = (1e-3, 3e-4)  # falls from one to the other
_LARGEST_FP8 = 448.0  # of e4m3
_SETTLING_STEPS = 20  # from a new optimizer to version 0: AdamW's first steps are all of one length


@dataclasses.dataclass(frozen=True)
class Version:
    """All weights of a model one after another, as patterns.

    Attributes:
        step: steps since version 0.
        bf16: uint16.
        fp8: uint8, e4m3 of the weights times a power of two for each tensor, with which version 0
            just fits.
    """

    step: int
    bf16: np.ndarray
    fp8: np.ndarray


class FineTuning:
    """A model that has learnt a first text, and what fine-tuning at some rate makes of it.

    Raises DataError if a text is missing.
    """

    def __init__(self, width: int, layers: int, base_steps: int, seed: int = 1) -> None:
        torch.manual_seed(seed)
        first, second = (
            torch.frombuffer(bytearray(read_packed(data_folder() / name)), dtype=torch.uint8)
            for name in ("wikitext-2/wiki.valid.tokens", "shakespeare/input.txt")
        )
        self._network = CharacterTransformer(_BYTE_VALUES, width, layers, _LENGTH)
        self._text = second
        optimizer = torch.optim.AdamW(self._network.parameters())
        chance = torch.Generator().manual_seed(seed)
        self.base_loss = float("nan")
        for step in range(base_steps):
            begin, end = _BASE_RATES
            optimizer.param_groups[0]["lr"] = begin + (end - begin) * step / base_steps
            self.base_loss = self._step(first, optimizer, chance)
        self._base = {name: value.clone() for name, value in self._network.state_dict().items()}

    @property
    def weights(self) -> int:
        """Elements of a version."""
        return sum(parameter.numel() for parameter in self._network.parameters())

    def versions(self, rate: float, steps: Iterable[int]) -> Iterator[Version]:
        """Version 0 and those after `steps`, which ascend, of AdamW at `rate` from the base."""
        self._network.load_state_dict(self._base)
        optimizer = torch.optim.AdamW(self._network.parameters(), lr=rate)
        chance = torch.Generator().manual_seed(2)
        for _ in range(_SETTLING_STEPS):
            self._step(self._text, optimizer, chance)
        parameters = list(self._network.parameters())
        scales = [_scale_of(parameter.detach()) for parameter in parameters]
        for before, after in itertools.pairwise((0, 0, *steps)):
            for _ in range(after - before):
                self._step(self._text, optimizer, chance)
            weights = [parameter.detach() for parameter in parameters]
            yield Version(
                after,
                _patterns([each.bfloat16() for each in weights], torch.uint16),
                _patterns(map(_fp8_of, weights, scales), torch.uint8),
            )

    def _step(
        self, text: torch.Tensor, optimizer: torch.optim.Optimizer, chance: torch.Generator
    ) -> float:
        starts = torch.randint(0, len(text) - _LENGTH, (_BATCH,), generator=chance)
        chosen = torch.stack([text[start : start + _LENGTH + 1] for start in starts]).long()
        outputs = self._network(chosen[:, :-1])
        loss = functional.cross_entropy(outputs.flatten(0, 1), chosen[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), 1.0)
        optimizer.step()
        return loss.item()


def _scale_of(weights: torch.Tensor) -> float:
    """The largest power of two with which the weights fit."""
    return 2.0 ** math.floor(math.log2(_LARGEST_FP8 / weights.abs().max().item()))


def _fp8_of(weights: torch.Tensor, scale: float) -> torch.Tensor:
    return (weights * scale).clamp(-_LARGEST_FP8, _LARGEST_FP8).to(torch.float8_e4m3fn)


def _patterns(tensors: Iterable[torch.Tensor], kind: torch.dtype) -> np.ndarray:
    return torch.cat([tensor.flatten().view(kind) for tensor in tensors]).numpy()
