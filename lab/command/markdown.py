"""Markdown of the pages that programs of the lab write."""

import textwrap
from collections.abc import Iterable, Sequence

_WIDTH = 120


def wrapped(text: str) -> str:
    """A paragraph of a page, in lines of at most 120 characters; words stay whole."""
    words = " ".join(text.split())
    return textwrap.fill(words, _WIDTH, break_long_words=False, break_on_hyphens=False)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int | None = None) -> str:
    """A table; all columns behind the first `left` ones are aligned to the right."""
    count = len(head) if left is None else left
    line = "|" + "---|" * count + "---:|" * (len(head) - count)
    return "\n".join([_row(head), line, *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
