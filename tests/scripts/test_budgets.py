"""What counts as product, library and tests, and the limits on them."""

import subprocess
from pathlib import Path

import pytest
from planted import bare, check, check_layers

budgets = check_layers.budgets
PRODUCT, LIBRARY, FILES, PYTHON, LAB, TESTS, TRACKED = budgets.LIMITS


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Its files have 1, 2, 4 lines and so on, so that a sum tells which were counted."""
    names = (
        *("src/base/a.cc", "include/deltawire/a.h", "python/deltawire/a.py", "lab/a.py"),
        *("scripts/a.sh", "src/CMakeLists.txt", "src/base/a_test.cc", "src/base/fuzz_a.cc"),
        *("src/base/a_testing.h", "src/codecs/a_decoder.py", "tests/a.py", "tests/golden/a.py"),
    )
    for i, name in enumerate(names):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("\n" * 2**i)
    return bare(tmp_path)


def counts(root: Path) -> dict[str, int | None]:
    return {row.name: row.count for row in budgets.budgets(root)}


def test_what_is_counted_as_what(tree: Path) -> None:
    assert counts(tree) == {
        PRODUCT: 0b111111,
        LIBRARY: 0b111,
        FILES: 3,
        PYTHON: 0b100,
        LAB: 0b1000,
        TESTS: 0b11111000000,
        TRACKED: None,
    }


def test_git_says_what_counts_where_there_is_one(tree: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", tree, *words], check=True, capture_output=True)

    git("init")
    git("add", "src/base/a.cc", "lab/a.py", "docs")
    found = counts(tree)
    assert (found[PRODUCT], found[LAB], found[TRACKED]) == (0b1001, 0b1000, 3)
    (tree / "lab" / "a.py").unlink()  # not yet told to git
    assert counts(tree)[LAB] == 0


@pytest.mark.parametrize("limit", [0b111111, 0b111110])
def test_the_checker_fails_above_a_limit(
    tree: Path, limit: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setitem(budgets.LIMITS, PRODUCT, limit)
    _, said = check(tree)
    status = budgets.main([str(tree)])
    problem = f"{PRODUCT}: 63, the limit is 62 (scripts/budgets.py)"
    assert (problem in said) == (limit < 63)
    assert status == (limit < 63)
    assert "no git" in capsys.readouterr().out


def test_the_checker_says_aloud_what_it_could_not_count(tree: Path) -> None:
    (tree / "CMakeLists.txt").write_text("")  # a whole tree
    assert f"note: {TRACKED}: not counted" in check(tree)[1]
