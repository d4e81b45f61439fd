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


def test_examples_are_code():
    """An indented example behind a line without "::" becomes prose with curly quotes."""
    prose = [place for place, text in docstrings() if list(indented_prose(text.splitlines()))]
    assert not prose, "end the line before the example with ::"


def indented_prose(lines: list[str]) -> Iterator[str]:
    in_section = False  # "Args:" and its kin have indented text
    for number, line in enumerate(lines):
        if line and not line.startswith(" "):
            in_section = bool(re.fullmatch(r"\w+:", line))
        begins = line.startswith("    ") and number > 1 and not lines[number - 1]
        before = next((each for each in reversed(lines[:number]) if each), "")
        if begins and not in_section and not before.startswith(" ") and not before.endswith("::"):
            yield line


def test_the_reference_has_every_public_module():
    page = (PACKAGE.parents[1] / "docs" / "reference" / "api" / "python.md").read_text()
    for module in ("", ".torch", ".planner", ".rounds", ".flower", ".lightning"):
        assert f".. automodule:: deltawire{module}\n" in page
