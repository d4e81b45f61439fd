"""Makes the package's description on PyPI from README.md.

That page can't show other files of the repository: links to them become plain text; pictures from
the repository and HTML comments are removed. pyproject.toml names this file as a provider of
dynamic metadata.
"""

import re
from collections.abc import Mapping
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def dynamic_metadata(_settings: Mapping, _project: Mapping) -> dict[str, dict[str, str]]:
    """The function that scikit-build-core calls (dynamic-metadata 0.3)."""
    text = alone(README.read_text(encoding="utf-8"))
    return {"readme": {"content-type": "text/markdown", "text": text}}


def alone(text: str) -> str:
    """The README without links and pictures that only work in the repository."""
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n?", "", text)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)
