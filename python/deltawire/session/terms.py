"""The settings that all ranks of a job must share, as one record, for every interface.

It is sent as a text of at most `TEXT_BYTES`, which is equal if the records are: long values, and
the list of a model's tensors, are shortened in it, with a digest of the whole.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence

from deltawire import _core
from deltawire.errors import make_error

TEXT_BYTES = 1024
_BETWEEN = " | "
_LONGEST = 128  # bytes of a value that is not shortened in the text
_SHOWN = 72  # bytes that are shown of a longer one
_FIELDS_SHOWN = 3

# The full value of a setting on a rank: its text or, for a model, a line for each tensor.
Whole = str | list[str]
# (value as shown in the texts, ranks) for each value of a setting: the one with the fewest ranks
# first; of equal ones, the one with rank 0 last.
Parties = list[tuple[str, list[int]]]


class Terms:
    """A rank's record.

    Args:
        door: the call, such as "register".
        tensors: of the model, a line for each, in the model's order; see `tensor_line`.
        settings: by name; equal values have the same str().
    """

    def __init__(self, door: str, tensors: Sequence[str] = (), **settings: object) -> None:
        texts = {name: str(value).replace(_BETWEEN, " / ") for name, value in settings.items()}
        self._whole: dict[str, Whole] = {"door": door, "version": _core.__version__, **texts}
        if tensors:
            self._whole["model"] = list(tensors)

    def whole(self, name: str) -> Whole:
        """The whole setting, which `text` may have shortened; empty if there is none."""
        return self._whole.get(name, "")

    @property
    def text(self) -> str:
        """The record for other ranks; raises "Limit" if it has too many settings."""
        text = _BETWEEN.join(f"{name}={_short(value)}" for name, value in self._whole.items())
        if len(text.encode()) > TEXT_BYTES:
            raise make_error("Limit", f"settings of more than {TEXT_BYTES} bytes: {text}")
        return text


def tensor_line(name: str, dtype: str, shape: Iterable[int], *more: str) -> str:
    """A tensor in words, for messages: "'fc.weight' float32 (10, 32)"."""
    return " ".join([f"'{name}'", dtype, str(tuple(shape)), *more])


def check(texts: Sequence[str], whole_of: Callable[[int, str], Whole] | None = None) -> None:
    """Raises the same "Mismatch" on every rank if the ranks' texts differ: it names the setting and
    its values, and which rank has which; `suspect` is one of the smallest group.

    Args:
        texts: by rank.
        whole_of: returns a rank's full value of a setting, the same on every rank; it is called in
            the same order everywhere, so it may be a collective. None: full values are not known.
    """
    if found := _differences(texts):
        clauses = [_clause(*each, whole_of) for each in found[:_FIELDS_SHOWN]]
        name, parties = found[0]
        advice = _ADVICE.get(name, "pass the same arguments on every rank")
        raise make_error("Mismatch", f"{'; '.join(clauses)}; {advice}", parties[0][1][0])


def _differences(texts: Sequence[str]) -> list[tuple[str, Parties]]:
    """The settings that differ and explain the error: if ranks made different calls, only that."""
    records = [dict(each.partition("=")[::2] for each in text.split(_BETWEEN)) for text in texts]
    names = dict.fromkeys(name for record in records for name in record)
    found = []
    for name in names:
        ranks: dict[str, list[int]] = {}
        for rank, record in enumerate(records):
            ranks.setdefault(record.get(name, "(none)"), []).append(rank)
        if len(ranks) > 1:
            parties = sorted(ranks.items(), key=lambda party: (len(party[1]), -party[1][0]))
            found.append((name, parties))
    return found[:1] if found and found[0][0] in _ADVICE else found


def _clause(name: str, parties: Parties, whole_of: Callable[[int, str], Whole] | None) -> str:
    values = [value for value, _ in parties]
    # The texts may show too little to explain the difference.
    if whole_of is not None and (name == "model" or any("... " in value for value in values)):
        # Two values are enough to show the difference: the smallest party's and the largest's.
        parties = [parties[0], parties[-1]]
        ours, theirs = (whole_of(ranks[0], name) for _, ranks in parties)
        if name == "model":
            return _models(list(ours), list(theirs), [ranks for _, ranks in parties])
        values = _around(str(ours), str(theirs))
    return ", ".join(
        f"{named(ranks)} {'has' if len(ranks) == 1 else 'have'} {name}={value}"
        for value, (_, ranks) in zip(values, parties, strict=True)
    )


def _models(ours: list[str], theirs: list[str], ranks: list[list[int]]) -> str:
    at = _first_apart(ours, theirs)
    words = [
        f"of {named(each)} is {lines[at] if at < len(lines) else 'missing'}"
        for lines, each in zip((ours, theirs), ranks, strict=True)
    ]
    return f"the ranks' models differ: tensor {at} {words[0]}, and {words[1]}"


def _first_apart(ours: Whole, theirs: Whole) -> int:
    pairs = zip(ours, theirs, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))


# Ordered by importance: settings that explain differences in others come first.
_ADVICE = {
    "door": "call the same on every rank",
    "version": "install the same version of deltawire everywhere",
    "model": "make the same model on every rank",
}


def _short(value: Whole) -> str:
    if isinstance(value, list):
        return f"{len(value)} tensors {_digest(value)}"
    if len(value.encode()) <= _LONGEST:
        return value
    start = value.encode()[:_SHOWN].decode(errors="ignore")
    return f"{start}... {_digest([value])}"


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _around(ours: str, theirs: str) -> list[str]:
    """Excerpts of two texts around the first character that differs."""
    at = _first_apart(ours, theirs)
    start = max(0, at - _SHOWN // 2)

    def part(text: str) -> str:
        end = at + _LONGEST - _SHOWN // 2
        return f"{'...' * (start > 0)}{text[start:end]}{'...' * (end < len(text))}"

    return [part(ours), part(theirs)]


def named(ranks: list[int]) -> str:
    """ "rank 3", "ranks 1, 2 and 5 more"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = list(map(str, ranks[:8]))
    last = f"{len(ranks) - 8} more" if len(ranks) > 8 else shown.pop()
    return f"ranks {', '.join(shown)} and {last}"
