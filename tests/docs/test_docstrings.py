"""What the site's strict build would refuse in docstrings: it takes `name_` for a link, and a
backtick that is never closed for text. The site itself is built by `make docs` alone."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "deltawire"
LINK = re.compile(r"(?<!\w)[A-Za-z]\w*_(?!\w)")
QUOTED = re.compile(r"``.*?``|`[^`]*`", re.DOTALL)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            text = ast.get_docstring(node) if isinstance(node, DOCUMENTED) else None
            if text:
                yield f"{path.relative_to(PACKAGE)}: {getattr(node, 'name', 'module')}", text


def test_docstrings_build():
    found = list(docstrings())
    assert len(found) > 100
    unquoted = {place: QUOTED.sub("", text) for place, text in found}
    links = {place: LINK.findall(text) for place, text in unquoted.items() if LINK.search(text)}
    assert not links, "write these between backticks"
    assert not [place for place, text in unquoted.items() if "`" in text], "a backtick is left open"
