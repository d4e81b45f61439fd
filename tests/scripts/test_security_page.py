"""docs/reference/security.md names a test for each promise: they must exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "security.md").read_text(encoding="utf-8")


def sources(pattern, *folders):
    paths = [path for folder in folders for path in (ROOT / folder).rglob(pattern)]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def test_every_test_that_the_page_names_is_there():
    cpp, python = sources("*_test.cc", "src", "apps"), sources("test_*.py", "tests")
    named = re.findall(r"`([A-Z]\w+)\.(\w+|\*)`", PAGE)
    assert len(named) >= 19
    for suite, name in named:
        wanted = rf"TEST\w*\({suite}, " + ("" if name == "*" else rf"{name}\)")
        assert re.search(wanted, cpp), f"{suite}.{name}"
    functions = re.findall(r"`(test_\w+)`", PAGE)
    assert len(functions) > 5
    for name in functions:
        assert f"def {name}(" in python, name
