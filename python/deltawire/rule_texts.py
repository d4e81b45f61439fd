"""The rules of a canonical spec, as text: only the core interprets them.

In a canonical spec rules are separated by ", ", and a codec's parameters by "," without a space.
"""

import dataclasses
import re
from collections.abc import Iterable

from deltawire.policy import pattern_and_codec


@dataclasses.dataclass(frozen=True)
class RuleText:
    """One rule.

    Attributes:
        text: all of it: "conv* elements>=1000: topk:k=0.01 with momentum=0.9".
        name_pattern: "conv*"; empty if every name matches.
        codec: "topk:k=0.01 with momentum=0.9".
    """

    text: str
    name_pattern: str
    codec: str

    @property
    def codec_name(self) -> str:
        """ "topk"."""
        return re.match(r"\w*", self.codec)[0]

    def fits(self, name: str) -> bool:
        """Whether its pattern matches a tensor's name: * is any text, ? one character."""
        parts = ({"*": ".*", "?": "."}.get(each, re.escape(each)) for each in self.name_pattern)
        return not self.name_pattern or bool(re.fullmatch("".join(parts), name, re.DOTALL))


def rules_of(canonical_spec: str) -> list[RuleText]:
    """All rules, in order; one codec for all is one rule."""
    _, rules = pattern_and_codec(canonical_spec)
    return [_rule(text) for text in rules.split(", ")]


def _rule(text: str) -> RuleText:
    conditions, found, codec = text.partition(": ")
    if not found:
        return RuleText(text, "", text.removeprefix("rest "))
    first = conditions.split(" ")[0]
    is_name = not re.match(r"(elements|dims|step)[<>=]", first)
    return RuleText(text, first if is_name else "", codec)


def rules_without_tensor(canonical_spec: str, names: Iterable[str]) -> list[RuleText]:
    """The rules whose name pattern matches none of these tensors."""
    known = list(names)
    return [rule for rule in rules_of(canonical_spec) if not any(map(rule.fits, known))]
