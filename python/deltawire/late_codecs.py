"""Rules that send most of a gradient later, and so conflict with an optimizer's momentum.

What waits in a residual arrives steps later and in large pieces, and a momentum of m multiplies
each piece by 1 / (1 - m). Measured, with SGD's momentum of 0.9: docs/results/training.md,
"Late codecs and momentum".
"""

from deltawire.rule_texts import RuleText, rules_of

# Those that diverged there. Local steps of more than one step don't: a rank's own optimizer has
# gone through its momentum before anything is coded.
_LATE = frozenset({"topk", "sbc", "dropping", "randomk", "onebit", "signsgd", "twobit"})


def rate_times(momentum: float) -> float:
    """By how much the learning rate grows when an optimizer gives up this momentum: half of
    1 / (1 - momentum), since the whole diverges; measured with 0.9, where it is 5."""
    return max(1.0, 0.5 / (1.0 - momentum)) if momentum < 1 else 1.0


def late_rules(canonical_spec: str) -> list[str]:
    """The rules of a canonical spec whose codec sends most of a gradient later, without momentum
    before the codec: ["topk:k=0.01,values=fp32,positions=golomb"]."""
    return [rule.codec for rule in rules_of(canonical_spec) if _is_late(rule)]


def rules_with_momentum(canonical_spec: str) -> list[str]:
    """The rules of a canonical spec that have momentum before the codec."""
    return [rule.codec for rule in rules_of(canonical_spec) if "momentum=" in rule.codec]


def _is_late(rule: RuleText) -> bool:
    keeps = "feedback=off" not in rule.codec and "momentum=" not in rule.codec
    return rule.codec_name in _LATE and keeps
