"""Sums of weights' bits, by which ranks compare what should be equal."""

import hashlib
from collections.abc import Iterable, Sequence

import torch

_ELEMENTS = 1 << 18  # at a time, so that temporary memory stays in the caches
_WORDS = {2: torch.int16, 4: torch.int32}


@torch.no_grad()
def sums_of(weights: Iterable[torch.Tensor]) -> list[int]:
    """The sum of each tensor's bits as integers: exact in any order. Of tensors of 16 or 32 bits;
    waits for their devices."""
    return [int(sum(map(_sum_of, _words_of(each).split(_ELEMENTS)), 0)) for each in weights]


def digest_of_sums(sums: Sequence[int]) -> int:
    """64 bits for `_core.Step.agreed`."""
    return int.from_bytes(hashlib.sha256(repr(list(sums)).encode()).digest()[:8], "little")


def _words_of(weight: torch.Tensor) -> torch.Tensor:
    return weight.detach().view(_WORDS[weight.element_size()]).reshape(-1)


def _sum_of(words: torch.Tensor) -> torch.Tensor:
    return words.sum(dtype=torch.int64)
