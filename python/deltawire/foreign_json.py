"""JSON that others wrote: files, and what other processes send."""

import json
from collections import Counter
from collections.abc import Callable

# Documents of this package have at most seven levels. A stack that is full already cuts deeper ones
# off, and this does what then remains: later code may walk through a value, or print it.
MOST_LEVELS = 100

# What reading a value raises whose types aren't the expected ones: int() of an infinity, a list as
# a key, a number for a dict.
UNFIT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def parse(text: str | bytes, parse_constant: Callable[[str], object] | None = None) -> object:
    """The value of a document; `parse_constant` is for NaN and the infinities, as in `json.loads`.

    Raises:
        ValueError: no JSON, a name that occurs twice in an object, more than MOST_LEVELS levels.
    """
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=parse_constant)
    except RecursionError:
        raise _too_deep() from None
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise _too_deep()


def _object(members: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(members)
    if len(found) < len(members):
        name = Counter(name for name, _ in members).most_common(1)[0][0]
        raise ValueError(f"{name[:80]!r} occurs twice in an object")
    return found


def _inside(value: object) -> list | tuple:
    if isinstance(value, dict):
        return tuple(value.values())
    return value if isinstance(value, list) else ()


def _too_deep() -> ValueError:
    return ValueError(f"it has more than {MOST_LEVELS} levels")
