"""Finds code that takes the text of a spec apart. Only the parser does: others ask `Spec`."""

import re

# Where the grammar of specs is at home; tests may look at texts.
_HOME = re.compile(r"^(src/(base|codecs|channel|reduce)/|tests/|scripts/)|_(test|testing)\.\w+$")
_NAMED = r"\b\w*(?:[sS]pec|[cC]odecs?|[cC]anonical|[rR]educer|[pP]olicy)(?:\(\))?"
_CPP = re.compile(_NAMED + r"(?:\.|->)(?:r?find\w*|substr|starts_with|ends_with)\(")
_PYTHON = re.compile(
    _NAMED
    + r"\.(?:r?partition|r?split|removeprefix|removesuffix|startswith|endswith|r?find|r?index)"
    r"\((?!\"@\")"  # a path
)


def lines_that_read(name: str, text: str) -> list[int]:
    """Numbers of the lines of a C++ or Python file that read a spec's text."""
    if _HOME.search(name):
        return []
    pattern = _PYTHON if name.endswith(".py") else _CPP
    return [number for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]
