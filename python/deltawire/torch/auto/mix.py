"""A codec for each bucket, as rules that an exchange is made from."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

from deltawire import _core
from deltawire.errors import InvalidArgumentError, make_error
from deltawire.planner import CodecFigures, Link, Machine, Workload, make_mix
from deltawire.policy import pattern_and_codec

MOST_NAMES = 500  # in rules: each tensor is compared with all of them
_PATTERNS = ("direct", "ring", "gather")
_NOT_IN_NAMES = set(" ,()<>=*?")


@dataclasses.dataclass(frozen=True)
class BucketChoice:
    """Attributes:
    spec: the rules, canonical.
    of_bucket: the codec of each bucket, in the order of exchange.
    predicted_ms: of a step.
    """

    spec: str
    of_bucket: tuple[str, ...]
    predicted_ms: float


def choose(
    site: tuple[Workload, int, Link, Machine],
    buckets: Sequence[Sequence[tuple[str, int]]],
    figures: Sequence[CodecFigures],
    uncoded: dict,
    tier: str,
) -> tuple[BucketChoice | None, str | None]:
    """Where a codec for each bucket is predicted to be faster than any for all: that choice, or why
    it can't be made, in a line.

    Args:
        site: of the plan: workload, ranks, link and machine.
        buckets: of each, [(name, elements)].
        figures: of the codecs that all ranks can use.
        uncoded: figures of "fp32", as `codec_figures.measure` gives them. It may stand beside any.
        tier: what may be lost.
    """
    workload, ranks, link, machine = site
    # Without a codec to mix it with fp32 is no choice of buckets.
    patterns = [each for each in _PATTERNS if any(f.pattern == each for f in figures)]
    offered = [*figures, *(_figures_in(pattern, uncoded) for pattern in patterns)]
    mix = make_mix(workload, ranks, link, offered, machine, tier)
    if mix is None:
        return None, None
    chosen = [offered[index] for index in mix.of_bucket]
    codecs = tuple(pattern_and_codec(each.spec)[1] for each in chosen)
    try:
        spec = rules(chosen[0].pattern, buckets, codecs)
    except InvalidArgumentError as cause:
        return None, f"a codec for each bucket: {cause}"
    return BucketChoice(spec, codecs, 1e3 * mix.prediction.step_seconds), None


def _figures_in(pattern: str, said: dict) -> CodecFigures:
    spec = f"{pattern}({pattern_and_codec(said['spec'])[1]})"
    return CodecFigures(**(said | {"spec": spec, "pattern": pattern}))


def rules(
    pattern: str, buckets: Sequence[Sequence[tuple[str, int]]], of_bucket: Sequence[str]
) -> str:
    """The canonical spec that gives each tensor its bucket's codec. InvalidArgumentError where
    rules can't say so."""
    tensors = Counter()
    for bucket, codec in zip(buckets, of_bucket, strict=True):
        tensors[codec] += len(bucket)
    rest = max(tensors, key=tensors.__getitem__)
    named = [
        (name, codec)
        for bucket, codec in zip(buckets, of_bucket, strict=True)
        for name, _ in bucket
        if codec != rest
    ]
    for name, _ in named:
        if _NOT_IN_NAMES & set(name):
            raise make_error("InvalidArgument", f"the name '{name}' can't stand in a rule")
    if len(named) > MOST_NAMES:
        raise make_error(
            "InvalidArgument", f"{len(named)} tensors need a rule, and {MOST_NAMES} may have one"
        )
    text = ", ".join(f"{name}: {codec}" for name, codec in named)
    return _core.canonical_spec(f"{pattern}({text}, rest {rest})")


def label(pattern: str, of_bucket: Sequence[str]) -> str:
    """In one line, such as "direct, by bucket: fp32 in 0-2, 5; bf16 in 3-4"."""
    places: dict[str, list[list[int]]] = {}
    for index, codec in enumerate(of_bucket):
        runs = places.setdefault(codec, [])
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    texts = (
        f"{codec} in " + ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in runs)
        for codec, runs in places.items()
    )
    return f"{pattern}, by bucket: {'; '.join(texts)}"
