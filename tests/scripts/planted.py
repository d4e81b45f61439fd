"""A tree under the real rules of scripts/check_layers.py, in which tests plant defects."""

import contextlib
import io
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_layers  # noqa: E402


def check(root: Path, *arguments: str) -> tuple[int, str]:
    """The checker's status and what it says, without a process for each test."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = check_layers.main([str(root), *arguments])
    return status, out.getvalue()


def bare(root: Path) -> Path:
    """With the rules, and nothing that they are for."""
    (root / "docs" / "design").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "design" / "architecture.md", root / "docs" / "design")
    return root


def plant(root: Path, name: str, text: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def expect_one(root: Path, *words: str) -> None:
    """One violation, whose line has these words."""
    status, said = check(root)
    first, *rest = said.splitlines()
    assert status == 1 and len(rest) == 1, said
    assert all(word in first for word in words), first
