"""Rules that send most of a gradient later, and so conflict with an optimizer's momentum.

What a residual keeps arrives steps later and in large pieces, and a momentum of m multiplies each
piece by 1 / (1 - m); docs/results/training/late-codecs.md has measurements with SGD and AdamW. With
local steps of more than one step there is no conflict: a rank's optimizer has applied its momentum
before anything is encoded.
"""

import functools

from deltawire import _core
from deltawire.rule_texts import rules_of

# Of 1 / (1 - momentum): the learning rate without momentum that trains from the first step on,
# measured with 0.9, where it is 5. The whole of it diverges.
RATE_SHARE = 0.5


def constant_rate_times(momentum: float) -> float:
    """The factor by which to raise the learning rate when this momentum is turned off."""
    return max(1.0, RATE_SHARE / (1.0 - momentum)) if momentum < 1 else 1.0


def late_rules(canonical_spec: str) -> list[str]:
    """The rules of a canonical spec whose codec sends most of a gradient later, without momentum
    before the codec: ["topk:k=0.01,values=fp32,positions=golomb"]."""
    return [rule.codec for rule in rules_of(canonical_spec) if is_late(rule.codec)]


def rules_with_momentum(canonical_spec: str) -> list[str]:
    """The rules of a canonical spec that have momentum before the codec."""
    return [rule.codec for rule in rules_of(canonical_spec) if "momentum=" in rule.codec]


@functools.cache
def is_late(codec: str) -> bool:
    """Whether a canonical codec, with what stands before it, sends most of a gradient later."""
    keeps = "feedback=off" not in codec and "momentum=" not in codec
    return keeps and _core.is_late(codec)
