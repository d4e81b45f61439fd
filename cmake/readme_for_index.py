"""The package's description: README.md for a page that has none of the repository's other files.

A provider of dynamic metadata (pyproject.toml): links to files of the repository become plain text,
pictures of it and HTML comments go.
"""

import re
from collections.abc import Mapping
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def dynamic_metadata(_settings: Mapping, _project: Mapping) -> dict[str, dict[str, str]]:
    """What scikit-build-core calls (dynamic-metadata 0.3)."""
    text = alone(README.read_text(encoding="utf-8"))
    return {"readme": {"content-type": "text/markdown", "text": text}}


def alone(text: str) -> str:
    """A README without what is only in the repository."""
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n?", "", text)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)
