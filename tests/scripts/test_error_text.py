"""Nobody takes an error's text apart: what a program needs of it is a field."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OF_STR = {
    "replace", "partition", "rpartition", "removeprefix", "removesuffix", "startswith", "find",
    "index", "rfind", "translate",
}  # fmt: skip
OF_RE = {"sub", "subn", "match", "fullmatch", "search", "split", "findall", "finditer"}


def _is_error_text(node: ast.AST, texts: set[str]) -> bool:
    """Whether it is `str(an error)`, its `message`, or a variable with one of them."""
    if isinstance(node, ast.Name):
        return node.id in texts
    if isinstance(node, ast.Attribute):
        return node.attr == "message" and isinstance(node.value, ast.Name)
    is_str = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "str"
    return is_str and len(node.args) == 1 and _is_error(node.args[0])


def _is_error(node: ast.AST) -> bool:
    name = getattr(node, "id", None) or getattr(node, "attr", "")
    return name in ("error", "cause", "problem", "failure") or name.endswith("_error")


def _parameters_with_one(tree: ast.AST) -> set[str]:
    """Parameters of the module's functions that are given an error's text there."""
    walked = list(ast.walk(tree))
    functions = {each.name: each for each in walked if isinstance(each, ast.FunctionDef)}
    return {
        parameter.arg
        for call in walked
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in functions
        for parameter, value in zip(functions[call.func.id].args.args, call.args, strict=False)
        if _is_error_text(value, set())
    }


def taken_apart(source: str) -> list[int]:
    """Lines that take the text of an error apart."""
    tree = ast.parse(source)
    texts = {
        target.id
        for each in ast.walk(tree)
        if isinstance(each, ast.Assign) and _is_error_text(each.value, set())
        for target in each.targets
        if isinstance(target, ast.Name)
    } | _parameters_with_one(tree)
    lines = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        at, name = node.func.value, node.func.attr
        of_text = name in OF_STR and _is_error_text(at, texts)
        of_match = name in OF_RE and any(_is_error_text(each, texts) for each in node.args)
        if of_text or of_match:
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize(
    "line",
    [
        'text = str(error).replace("; mend it", "")',
        'reason = _FOR_STORES.sub("", str(error))',
        'text = str(error)\ntext = text.replace("; mend it", "")',
        're.match("rank (.*) reports", str(self.last_error))',
        'who, _, what = str(cause).partition(" reports: ")',
        'if error.message.startswith("rank "): pass',
        'def ends(text):\n  return text.startswith("rank ")\nends(str(error))',
    ],
)
def test_what_takes_an_error_apart_is_found(line):
    assert taken_apart(line)


def test_nothing_of_the_package_does():
    package = ROOT / "python" / "deltawire"
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(package.rglob("*.py"))
        if path.name != "errors.py"
        for line in taken_apart(path.read_text())
    }
    assert not found, f"{found}: give the error a field (deltawire.errors), and read that"
