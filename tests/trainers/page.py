"""The diffs in docs/guides/trainers.md: `python tests/trainers/page.py` writes them anew."""

import difflib
import re
from pathlib import Path

from recipes import MARK, with_ours, without_ours

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "trainers.md"
CHECK = "<!-- block: run by tests/trainers/test_page.py -->"  # for tests/docs/test_blocks.py
BLOCK = re.compile(r"<!-- diff (\S+) -->\n.*?<!-- /diff -->", re.S)


def diff_of(name: str) -> str:
    """What a recipe adds to its program, a line around each change."""
    before = without_ours(name).splitlines()
    after = [MARK.sub("", line) for line in with_ours(name).splitlines()]
    lines = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
    shown = ["" if line.startswith("@@") else line.rstrip() for line in lines[1:]]
    return "\n".join(shown).strip("\n")


def written(page: str) -> str:
    """The page with all diffs as the programs have them."""

    def block(match):
        name = match[1]
        diff = f"{CHECK}\n```diff\n{diff_of(name)}\n```"
        return f"<!-- diff {name} -->\n{diff}\n<!-- /diff -->"

    return BLOCK.sub(block, page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
