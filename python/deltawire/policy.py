"""A policy: which codec each tensor gets.

It can be text (a spec or rules), a dict or list, JSON text, or a TOML or JSON file. All other forms
are written as text here, and only the core reads it, so that ranks that write the same policy in
different forms have the same canonical spec, which is what they compare.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from deltawire import _core, foreign_json
from deltawire.errors import DeltawireError, InvalidArgumentError, make_error

Policy = str | os.PathLike[str] | Mapping[str, object] | Sequence[object]

_CONDITIONS = ("elements", "dims", "step")
_COMPARISON = re.compile(r"\s*(<=|>=|<|>|=)\s*([0-9]+)(?=\s|$)", re.ASCII)
_PATTERN = re.compile(r"[\w-]+(:\w+=\w+(,\w+=\w+)*)?", re.ASCII)
_NEVER_IN_NAMES = re.compile(r"[\s,()<>=]")  # they have a meaning in rules


def spec_of(policy: Policy) -> _core.Spec:
    """The reducer's spec that a policy stands for. In the pattern "hierarchical:group=host" the
    number of ranks on this host takes the place of "host": torchrun's LOCAL_WORLD_SIZE.

    Args:
        policy: as for `spec_text`.

    Raises:
        InvalidArgumentError (a ValueError), TypeError: as `spec_text`, and for a bad spec.
    """
    return _core.Spec(spec_text(policy), ranks_of_host=_ranks_of_host())


def spec_text(policy: Policy) -> str:
    """The text that a policy stands for, which the core has not read yet.

    Args:
        policy: text as it is; text that begins with { or [ is JSON; "@" and a path, or an
            os.PathLike, is a file, .toml or .json. A mapping has the keys

            - rest: the codec of all tensors that match no rule, "fp32", or
              {"codec": "fp32", "with": ...};
            - rules (optional): a list, of which the first that matches a tensor applies. Each has
              `codec`, one or more of `name` (a pattern of the whole name, * and ?), `elements`,
              `dims` and `step` (a comparison, ">=100000"; several, ">=100 <500"; or a number,
              for equality), and optionally `with`: what is applied before the codec,
              {"momentum": 0.9, "masking": True} or "momentum=0.9,masking=on";
            - pattern (optional): the exchange pattern, e.g. "gather" or "hierarchical:group=8".

            A list has the rules, and the rest as its last entry.

    Raises:
        InvalidArgumentError (a ValueError): names the file, the rule and the problem, and says
            what to do.
        TypeError: not a policy.
    """
    if isinstance(policy, str):
        if policy.startswith("@"):
            return _of_file(Path(policy[1:]))
        if not policy.lstrip().startswith(("{", "[")):
            return policy
        return _Reader("the policy's JSON").read(policy, foreign_json.parse)
    if isinstance(policy, os.PathLike):
        return _of_file(Path(policy))
    if isinstance(policy, Mapping | Sequence) and not isinstance(policy, bytes | bytearray):
        return _Reader("the policy").text_of(policy)
    raise TypeError(
        "a policy is text, a dict, a list or a path of a .toml or .json file, not "
        f"{type(policy).__name__}"
    )


def require_use(spec: _core.Spec, argument: str) -> None:
    """Raises InvalidArgumentError if `argument` would have no effect."""
    if spec.uses_significance:
        return
    users = [info.name for info in _core.registered_codecs() if info.significance]
    advice = f", or use a codec that cuts by it: {', '.join(users)}" if users else ""
    raise make_error(
        "InvalidArgument", f"{argument} has no effect with '{spec.given}'; leave it out{advice}"
    )


def _ranks_of_host() -> int:
    """0: unknown."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(ranks) if re.fullmatch("[0-9]{1,9}", ranks) else 0


def _of_file(path: Path) -> str:
    reader = _Reader(str(path))
    parse = {".toml": _toml, ".json": foreign_json.parse}.get(path.suffix.lower())
    if parse is None:
        raise reader.error("is neither .toml nor .json; name it by what it holds")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as cause:
        raise reader.error(f"can't be read: {cause.strerror or cause}") from cause
    except UnicodeDecodeError as cause:
        raise reader.error("is not UTF-8") from cause
    return reader.read(text, parse)


def _toml(text: str) -> object:
    """Raises ValueError."""
    try:
        import tomllib
    except ImportError as cause:
        raise ValueError("TOML needs Python 3.11 or later; write the policy as .json") from cause
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


class _Reader:
    """Turns one policy into text; its errors say where it came from."""

    def __init__(self, source: str) -> None:
        self._source = source

    def error(self, words: str) -> DeltawireError:
        return make_error("InvalidArgument", f"{self._source} {words}")

    def read(self, text: str, parse: Callable[[str], object]) -> str:
        try:
            policy = parse(text)
        except ValueError as cause:
            raise self.error(f"can't be read: {cause}") from cause
        if not isinstance(policy, dict | list):
            raise self.error(f"holds {policy!r}; write an object, or a list of rules")
        return self.text_of(policy)

    def text_of(self, policy: Mapping | Sequence) -> str:
        if not isinstance(policy, Mapping):
            if not policy:
                raise self.error("is an empty list; end it with the codec for the rest")
            policy = {"rules": list(policy[:-1]), "rest": policy[-1]}
        self._check_keys("", policy, ("pattern", "rules", "rest"))
        if "rest" not in policy:
            raise self.error(
                "has no 'rest', the codec of tensors that no rule fits; add e.g. rest: \"fp32\""
            )
        rules = policy.get("rules", [])
        if not isinstance(rules, Sequence) or isinstance(rules, str):
            raise self.error(f"has rules {rules!r}; make it a list")
        texts = [self._rule(f"rules[{i}]", rule) for i, rule in enumerate(rules)]
        texts.append(("rest " if texts else "") + self._rest(policy["rest"]))
        text = ", ".join(texts)
        if "pattern" not in policy:
            return text
        pattern = policy["pattern"]
        if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern):
            raise self.error(f'has pattern {pattern!r}; give the name of one, e.g. "direct"')
        return f"{pattern}({text})"

    def _check_keys(self, where: str, given: Mapping, known: Sequence[str]) -> None:
        for key in given:
            if key in known:
                continue
            hint = ""
            if where and key in ("rest", "pattern", "rules"):
                hint = "; in TOML, put what is the policy's own before the first [[rules]]"
            raise self.error(
                f"has the key {key!r}{' in ' + where if where else ''}, which means nothing; "
                f"there are {', '.join(known)}{hint}"
            )

    def _rest(self, rest: object) -> str:
        if isinstance(rest, str):
            rest = {"codec": rest}
        if not isinstance(rest, Mapping):
            raise self.error(f'has rest {rest!r}; give a codec, e.g. "fp32"')
        for key in ("name", *_CONDITIONS):
            if key in rest:
                raise self.error(
                    f"has the condition {key!r} in rest, which is for all that no rule fits; make "
                    'it one of the rules, and end with a codec alone, e.g. "fp32"'
                )
        self._check_keys("rest", rest, ("codec", "with"))
        return self._checked("rest", "", self._codec("rest", rest))

    def _rule(self, where: str, rule: object) -> str:
        if not isinstance(rule, Mapping):
            raise self.error(
                f'has {where} {rule!r}; a rule is an object such as {{"name": "conv*", '
                '"codec": "bf16"}'
            )
        self._check_keys(where, rule, ("name", *_CONDITIONS, "codec", "with"))
        conditions = self._name(where, rule["name"]) if "name" in rule else []
        for key in _CONDITIONS:
            if key in rule:
                conditions += self._comparisons(where, key, rule[key])
        if not conditions:
            raise self.error(
                f"has no condition in {where}, so that it is for all; give it name, elements, dims "
                "or step, or make it the rest"
            )
        return self._checked(where, " ".join(conditions) + ": ", self._codec(where, rule))

    def _name(self, where: str, name: object) -> list[str]:
        if not isinstance(name, str) or not name:
            raise self.error(f'has the name {name!r} in {where}; give a pattern, e.g. "conv*"')
        if found := _NEVER_IN_NAMES.search(name):
            raise self.error(
                f"has {found[0]!r} in the name {name!r} of {where}, which rules can't carry; put ? "
                "in its place, which stands for any character"
            )
        return [name]

    def _comparisons(self, where: str, key: str, given: object) -> list[str]:
        if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
            return [f"{key}={given}"]
        if isinstance(given, str):
            text, found = given.rstrip(), []
            at = 0
            while match := _COMPARISON.match(text, at):
                found.append(f"{key}{match[1]}{match[2]}")
                at = match.end()
            if found and at == len(text):
                return found
        raise self.error(
            f"has {key} {given!r} in {where}; give <, <=, =, >= or > and a number, e.g. "
            f'{key} = ">=100", several of them with a space between, or a whole number'
        )

    def _codec(self, where: str, rule: Mapping) -> str:
        if "codec" not in rule:
            raise self.error(f'has no codec in {where}; add e.g. codec: "bf16"')
        codec = rule["codec"]
        if not isinstance(codec, str) or not re.fullmatch(r"[^\s()]+( with [^\s()]+)?", codec):
            raise self.error(
                f"has the codec {codec!r} in {where}; give one with its parameters and no spaces, "
                'e.g. "3lc:s=1.75"'
            )
        pieces = self._pieces(where, rule["with"]) if "with" in rule else ""
        if not pieces:
            return codec
        if " with " in codec:
            raise self.error(f"has 'with' twice in {where}, in the codec and outside it; keep one")
        return f"{codec} with {pieces}"

    def _pieces(self, where: str, given: object) -> str:
        if isinstance(given, Mapping):
            words = {True: "on", False: "off"}
            given = ",".join(
                f"{key}={words[value] if isinstance(value, bool) else value}"
                for key, value in given.items()
            )
        if not isinstance(given, str) or re.search(r"[\s()]", given):
            raise self.error(
                f"has with {given!r} in {where}; give what stands before the codec, e.g. "
                '{"momentum": 0.9}'
            )
        return given

    def _checked(self, where: str, conditions: str, codec: str) -> str:
        """The rule, if the core takes it; else its words with the place."""
        rest = ", rest fp32" if conditions else ""
        try:
            _core.Spec(f"gather({conditions}{codec}{rest})")
        except InvalidArgumentError as cause:
            raise self.error(f"has {where} of which the core says: {cause}") from cause
        return conditions + codec
