"""Markdown of the pages that programs of the lab write."""

import textwrap

_WIDTH = 120


def wrapped(text: str) -> str:
    """A paragraph of a page, in lines of at most 120 characters; words stay whole."""
    words = " ".join(text.split())
    return textwrap.fill(words, _WIDTH, break_long_words=False, break_on_hyphens=False)
