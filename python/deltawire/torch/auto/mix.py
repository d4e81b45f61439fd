"""A codec for each bucket, expressed as rules."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

from deltawire import _core
from deltawire.errors import InvalidArgumentError, invalid
from deltawire.planner import CodecFigures, Link, Machine, Workload, make_mix

MOST_NAMES = 500  # rules: each tensor is compared with all of them
_PATTERNS = ("direct", "ring", "gather")
_NOT_IN_NAMES = set(" ,()<>=*?")


@dataclasses.dataclass(frozen=True)
class BucketChoice:
    """A codec for each bucket.

    Attributes:
        spec: the rules, canonical.
        of_bucket: the codec of each bucket, in the order of exchange.
        predicted_ms: milliseconds a step.
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
    """Looks for codecs by bucket that are predicted to be faster than one codec for all. Returns
    (choice, why it can't be made), of which at least one is None.

    Args:
        site: workload, ranks, link and machine of the plan.
        buckets: for each bucket, [(name, elements)].
        figures: those of the codecs that all ranks can use.
        uncoded: figures of "fp32" from `codec_figures.Trials`; it may be mixed with any codec.
        tier: what codecs may lose.
    """
    workload, ranks, link, machine = site
    # fp32 is only offered where there is a codec to mix it with.
    patterns = [each for each in _PATTERNS if any(f.pattern == each for f in figures)]
    codec = _core.Spec(uncoded["spec"]).codecs
    specs = [{"spec": f"{pattern}({codec})", "pattern": pattern} for pattern in patterns]
    offered = [*figures, *(CodecFigures(**uncoded | each) for each in specs)]
    mix = make_mix(workload, ranks, link, offered, machine, tier)
    if mix is None:
        return None, None
    chosen = [offered[index] for index in mix.of_bucket]
    codecs = tuple(_core.Spec(each.spec).codecs for each in chosen)
    try:
        spec = rules(chosen[0].pattern, buckets, codecs)
    except InvalidArgumentError as cause:
        return None, f"a codec for each bucket: {cause}"
    return BucketChoice(spec, codecs, 1e3 * mix.prediction.step_seconds), None


def rules(
    pattern: str, buckets: Sequence[Sequence[tuple[str, int]]], of_bucket: Sequence[str]
) -> str:
    """The canonical spec that gives each tensor its bucket's codec. Raises InvalidArgumentError if
    rules can't express it."""
    tensors = Counter()
    for bucket, codec in zip(buckets, of_bucket, strict=True):
        tensors[codec] += len(bucket)
    [(rest, _)] = tensors.most_common(1)
    named = [
        (name, codec)
        for bucket, codec in zip(buckets, of_bucket, strict=True)
        for name, _ in bucket
        if codec != rest
    ]
    for name, _ in named:
        if _NOT_IN_NAMES & set(name):
            raise invalid(f"the name '{name}' can't stand in a rule")
    if len(named) > MOST_NAMES:
        raise invalid(f"{len(named)} tensors need a rule, and {MOST_NAMES} may have one")
    text = ", ".join(f"{name}: {codec}" for name, codec in named)
    return _core.Spec(f"{pattern}({text}, rest {rest})").text


def label(pattern: str, of_bucket: Sequence[str]) -> str:
    """One line, such as "direct, by bucket: fp32 in 0-2, 5; bf16 in 3-4"."""
    places: dict[str, list[list[int]]] = {}
    for index, codec in enumerate(of_bucket):
        runs = places.setdefault(codec, [])
        if not runs or runs[-1][1] < index - 1:
            runs.append([index, index])
        runs[-1][1] = index
    texts = (
        f"{codec} in " + ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in runs)
        for codec, runs in places.items()
    )
    return f"{pattern}, by bucket: {'; '.join(texts)}"
