"""Measures codecs on a rank's own gradients, for the planner, in pieces."""

from collections.abc import Set as AbstractSet

import torch

from deltawire import _core
from deltawire.errors import DeltawireError
from deltawire.torch.core import arguments

# By tier: the codecs that trained as well as float32 in docs/results/training.md.
CANDIDATES = {
    "lossless": ("gcomp:lossless=on", "zstd"),
    "near-lossless": ("bf16",),
    "lossy": ("int8", "fp8", "qsgd", "3lc", "terngrad", "natural"),
}
# For gradients of 16 bits, which the native all-reduce sends as they are. `gcomp` has a form for
# them, which rounds sums and means as that does; `zstd` gains only where neither travels.
OF_16_BITS = {**CANDIDATES, "lossless": ("gcomp:lossless=on", "gather(zstd)")}
OF_FLOAT16 = {**OF_16_BITS, "near-lossless": ("fp16",)}
# Where some are float32. gcomp cuts nothing of the others, which bf16 would send as they are.
OF_SEVERAL = {**CANDIDATES, "near-lossless": ("gcomp:cut=12", "bf16")}
MOST_VALUES = 1 << 19  # in a sample: some milliseconds a round and codec
_PART = 81_920  # of `direct`: docs/reference/format.md, "Parts"
_FIGURES = ("spec", "pattern", "tier", "bits_per_value", "encode", "decode", "shares_parts")


def candidates(tier: str, dtypes: AbstractSet[str]) -> list[str]:
    """The specs to try for gradients of these dtypes, within a tier."""
    by_tier = OF_16_BITS if dtypes != {"float16"} else OF_FLOAT16
    if "float32" in dtypes:
        by_tier = CANDIDATES if dtypes == {"float32"} else OF_SEVERAL
    tiers = list(by_tier)
    return [spec for each in tiers[: tiers.index(tier) + 1] for spec in by_tier[each]]


def sample_places(elements: int, most: int = MOST_VALUES) -> list[tuple[int, int]]:
    """(first, count) of the parts of a tensor to measure with: evenly spread, or all of them if
    they have at most `most` values together."""
    parts = [(at, min(_PART, elements - at)) for at in range(0, elements, _PART)]
    stride = max(1, -(-elements // max(1, most)))
    return parts[::stride]


def rounds_of(trial: _core.CodecTrial) -> int:
    """Of a trial: as many as its figures need."""
    return trial.least_rounds


class Trials:
    """Measures codecs, in rounds of some milliseconds each.

    Args:
        specs: codecs, or patterns with codecs.
        parts: flat, on the CPU, as an exchange cuts them; without any, rounds do nothing.
        min_elements: as for `register`.

    Attributes:
        rounds: their number, which does not depend on the parts.
    """

    def __init__(self, specs: list[str], parts: dict[str, torch.Tensor], min_elements: int) -> None:
        self._parts = parts
        self._trials = [_core.CodecTrial(_core.Spec(spec), min_elements) for spec in specs]
        self._left = [i for i, each in enumerate(self._trials) for _ in range(rounds_of(each))]
        self.rounds = len(self._left)
        self.specs = specs
        self._places = [
            (name, part.data_ptr(), part.nbytes, list(part.shape), arguments.dtype_name(part.dtype))
            for name, part in parts.items()
        ]
        self._refused: dict[int, str] = {}

    def advance(self) -> None:
        """Does the next round."""
        index = self._left.pop(0)
        if not self._parts or index in self._refused:
            return
        try:
            self._trials[index].advance(self._places)
        except DeltawireError as cause:
            self._refused[index] = f"{self.specs[index]}: {cause}"

    def results(self) -> tuple[list[dict], list[str]]:
        """After all rounds: figures as `CodecFigures` takes them; a line on each that has none."""
        if not self._parts:
            return [], []
        taken = (each for index, each in enumerate(self._trials) if index not in self._refused)
        found = [each.figures() for each in taken]
        rows = [{name: getattr(each, name) for name in _FIGURES} for each in found]
        return rows, list(self._refused.values())
