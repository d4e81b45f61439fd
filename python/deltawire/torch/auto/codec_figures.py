"""Measures codecs on a rank's own gradients, for the planner: bits a value and processor time."""

import statistics
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import numpy as np
import torch

from deltawire import _core
from deltawire.errors import DeltawireError
from deltawire.planner import tier_of
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
_SMALL = 1024  # values: its time is mostly the cost of any message
_ROUNDS = 8  # with error feedback, whose first messages are smaller than the later ones
_ALIKE = 4  # rounds without it: messages are alike


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
        self.specs = specs
        self._parts = parts
        self._trials = [_Trial(spec, parts, min_elements) for spec in specs]
        self._left = [each for each in self._trials for _ in range(each.rounds)][::-1]
        self.rounds = len(self._left)
        self._overhead: tuple[float, float] | None = None

    def advance(self) -> None:
        """Does the next round."""
        trial = self._left.pop()
        if self._parts and self._overhead is None:
            # An exchange doesn't pay for calls through Python.
            self._overhead = _small_seconds("fp32", self._parts)
        if self._parts and trial.refused is None:
            trial.advance()

    def results(self) -> tuple[list[dict], list[str]]:
        """After all rounds: figures as `CodecFigures` takes them; a line on each that has none."""
        if not self._parts:
            return [], []
        refused = [each.refused for each in self._trials if each.refused is not None]
        taken = [each for each in self._trials if each.refused is None]
        return [each.figures(self._overhead) for each in taken], refused


class _Trial:
    """Measures one codec. `refused`: why it can't encode the values, in a line."""

    def __init__(self, spec: str, parts: dict[str, torch.Tensor], min_elements: int) -> None:
        self.refused: str | None = None
        self._spec = _core.Spec(spec)
        self.rounds = _ROUNDS if self._spec.keeps_residual else _ALIKE
        self._parts = parts
        self._min_elements = min_elements
        self._channel: _Channel | None = None
        self._of_means: _Channel | None = None  # which owners send back, where they take other bits
        self._times: list[tuple[float, float]] = []
        self._sizes: list[float] = []  # of a message, in bytes
        self._small = 0.0, 0.0
        self._error = 0.0

    def advance(self) -> None:
        try:
            self._advance()
        except DeltawireError as cause:
            self.refused = f"{self._spec.given}: {cause}"

    def _advance(self) -> None:
        first = self._channel is None
        if first:
            self._channel = _Channel(self._spec.codecs, self._min_elements)
            means = _Channel(self._spec.codecs, self._min_elements, means=True)
            if self._spec.pattern == "direct" and means.spec != self._channel.spec:
                self._of_means = means
            self._small = _small_seconds(self._spec.codecs, self._parts)
        encoding, message = _timed(lambda: self._channel.encode(self._parts))
        out = {name: torch.zeros_like(part) for name, part in self._parts.items()}
        decoding, _ = _timed(lambda: self._channel.decode(message, out))
        if first:  # no residual yet
            self._error = _relative_l2(self._parts, out)
        self._times.append((encoding, decoding))
        sizes = [len(message)]
        if self._of_means is not None:  # as many values as gradients
            sizes.append(len(self._of_means.encode(self._parts)))
        self._sizes.append(statistics.mean(sizes))

    def figures(self, overhead: tuple[float, float]) -> dict:
        values = sum(part.numel() for part in self._parts.values())
        long = [min(each) for each in zip(*self._times[1:], strict=True)]
        few = min(_SMALL, values)
        coding = [
            _core.coding_time((few, small - call), (values, whole - call))
            for small, call, whole in zip(self._small, overhead, long, strict=True)
        ]
        return {
            "spec": self._spec.text,
            "pattern": self._spec.pattern,
            "tier": tier_of(all(rule.info.lossless for rule in self._spec.rules), self._error),
            "bits_per_value": 8 * statistics.mean(self._sizes[self.rounds // 2 :]) / values,
            "encode": coding[0],
            "decode": coding[1],
            "shares_parts": all(rule.info.shares_parts for rule in self._spec.rules),
        }


class _Channel:
    """`deltawire.Channel` for tensors, as NumPy has no bfloat16."""

    def __init__(self, codec: str, min_elements: int, *, means: bool = False) -> None:
        self._core = _core.Channel(codec, min_elements, "exact", True, 0, means)
        self.spec = self._core.spec
        self._step = -1

    def encode(self, parts: Mapping[str, torch.Tensor]) -> bytes:
        self._step += 1
        message = self._core.encode(_places(parts), self._step, 0, 1, 1.0)
        self._core.commit()
        return message

    def decode(self, message: bytes, out: Mapping[str, torch.Tensor]) -> None:
        """Into zeros. An exchange adds to float32; to 16 bits nothing can be added."""
        adds = all(part.dtype == torch.float32 for part in out.values())
        flat = np.frombuffer(message, np.uint8)
        self._core.decode(flat, _places(out), (self._step, 0, 1), adds, 1.0, 1.0)


def _places(parts: Mapping[str, torch.Tensor]) -> list[tuple[str, int, int, list[int], str]]:
    return [
        (name, part.data_ptr(), part.nbytes, list(part.shape), arguments.dtype_name(part.dtype))
        for name, part in parts.items()
    ]


def _small_seconds(codec: str, parts: dict[str, torch.Tensor]) -> tuple[float, float]:
    """Seconds (to encode, to decode) a small message: the fastest of several."""
    longest = max(parts.values(), key=torch.Tensor.numel)
    small = {"small": longest[:_SMALL].clone()}
    channel = _Channel(codec, 0)
    times = []
    for _ in range(_ROUNDS):
        encoding, message = _timed(lambda: channel.encode(small))
        out = {"small": torch.zeros_like(small["small"])}
        times.append((encoding, _timed(lambda out=out, m=message: channel.decode(m, out))[0]))
    encode, decode = zip(*times, strict=True)
    return min(encode), min(decode)


def _timed(action) -> tuple[float, object]:
    """(seconds, result) of a call, in processor time of this thread, so that other ranks on the
    same cores don't count."""
    began = time.thread_time()
    made = action()
    return time.thread_time() - began, made


def _relative_l2(parts: dict[str, torch.Tensor], out: dict[str, torch.Tensor]) -> float:
    lost = sum(float((out[name].double() - part).square().sum()) for name, part in parts.items())
    whole = sum(float(part.double().square().sum()) for part in parts.values())
    return (lost / whole) ** 0.5 if whole else 0.0
