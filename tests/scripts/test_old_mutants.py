"""The mutation runner: its lists still fit the code, and it tells killed from lived on a toy."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
sys.path.insert(0, str(SCRIPTS))
import mutant_list  # noqa: E402

LAYERS = mutant_list.read_layers(ROOT)


@pytest.mark.parametrize("name", LAYERS)
def test_every_mutant_still_applies(name: str) -> None:
    wrong = []
    for mutant in LAYERS[name].mutants:
        try:
            text = (ROOT / mutant.path).read_text(encoding="utf-8")
            assert mutant.applied(text) != text
        except (OSError, mutant_list.StaleError) as error:
            wrong.append(f"{name} {mutant.number}: {mutant.path}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", LAYERS)
def test_no_mutant_stands_twice(name: str) -> None:
    seen = [(each.path, each.after, each.old, each.new) for each in LAYERS[name].mutants]
    assert len(seen) == len(set(seen))


TOY_LIST = """\
# A program that must print 3.
grace: 5
build: python3 -c "import ast; ast.parse(open('toy.py').read())"
run: test "$(python3 toy.py)" = 3

toy.py
- 1 + 2
+ 1 - 2

- if spare:
+ if not spare:

- 1 + 2
+ 1 +

- no such text
+ anything

@ # second
- print
+ exit

- while False
+ while True

- if spare:
+ if spare or True:
= the same
"""
TOY = """\
spare = 0
if spare:
    spare = 5
while False:
    pass
# first
# second
print(1 + 2)
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    plant(tmp_path, TOY_LIST)
    (tmp_path / "toy.py").write_text(TOY)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def plant(root: Path, text: str) -> None:
    (root / "scripts" / "mutants").mkdir(parents=True, exist_ok=True)
    (root / "scripts" / "mutants" / "toy.txt").write_text(text)


def mutate(root: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, SCRIPTS / "mutate.py", "--root", root, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def verdicts(output: str) -> dict[int, str]:
    """The verdict by number, from the lines of progress."""
    found = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) > 5 and "/" in words[0] and words[0][0].isdigit():
            found[int(words[5])] = words[1]
    return found


def test_each_verdict_on_a_toy(toy: Path) -> None:
    result = mutate(toy, "--jobs", "2")
    assert result.returncode == 1
    assert verdicts(result.stdout) == {
        1: "killed",
        2: "lived",
        3: "no-build",
        4: "stale",
        5: "killed",
        6: "time",
    }, result.stdout + result.stderr
    assert "3 of 6 killed" in result.stdout
    assert "'no such text' stands 0 times" in result.stdout
    # Nothing of it is left, here or in the copies.
    assert (toy / "toy.py").read_text() == TOY
    for copy in (toy / "build" / "mutants").glob("copy-*"):
        assert (copy / "toy.py").read_text() == TOY


def test_only_and_lived_choose(toy: Path) -> None:
    assert mutate(toy, "--layer", "toy", "--only", "1").returncode == 0
    assert verdicts(mutate(toy, "--layer", "toy", "--only", "1-2,7").stdout) == {
        1: "killed",
        2: "lived",
        7: "lived",
    }
    again = verdicts(mutate(toy, "--layer", "toy", "--only", "1-3", "--lived").stdout)
    assert again == {2: "lived", 3: "no-build"}


def test_a_copy_follows_the_tree(toy: Path) -> None:
    assert verdicts(mutate(toy, "--layer", "toy", "--only", "2").stdout) == {2: "lived"}
    (toy / "toy.py").write_text(TOY + "print(9) if spare else None\n")
    assert verdicts(mutate(toy, "--layer", "toy", "--only", "2").stdout) == {2: "killed"}


def test_tests_that_fail_without_a_mutant_end_it(toy: Path) -> None:
    (toy / "toy.py").write_text("print(4)\n")
    result = mutate(toy)
    assert result.returncode == 1
    assert "failed without any mutant" in result.stderr


def test_a_layer_that_the_machine_lacks_something_for_is_skipped_aloud(toy: Path) -> None:
    lists = toy / "scripts" / "mutants"
    other = TOY_LIST.replace("grace: 5", "needs: echo no abacus here; false\nprepare: exit 9")
    (lists / "a.txt").write_text(other)
    chosen = ("--layer", "a", "--layer", "toy")
    result = mutate(toy, *chosen)
    assert verdicts(result.stdout)[1] == "killed", result.stdout + result.stderr
    assert "a: SKIPPED, 6 mutants: no abacus here" in result.stdout
    assert "skipped: a, 7 mutants: no abacus here" in result.stdout.splitlines()[-1]
    kept = TOY_LIST.split("- if spare")[0]  # the one that is killed
    plant(toy, kept)
    assert mutate(toy, *chosen).returncode == 0
    assert mutate(toy, *chosen, "--no-skip").returncode == 1
    assert mutate(toy, "--layer", "a").returncode == 1, "nothing ran"


def test_wrong_usage(toy: Path) -> None:
    for wrong in (["--layer", "none"], ["--jobs", "0"], ["--only", "1"], ["--only", "x"]):
        assert mutate(toy, *wrong).returncode == 2
    assert "toy" in mutate(toy, "--layer", "none").stderr


@pytest.mark.parametrize(
    "text",
    [
        "toy.py\n- a\n+ b\n",
        "run: true\n- a\n+ b\n",
        "run: true\ntoy.py\n- a\n",
        "run: true\ntoy.py\n- a\n+ a\n",
        "run: true\ntoy.py\n- a\n- b\n+ c\n",
        "run: true\ntoy.py\nsome words\n",
    ],
)
def test_broken_lists_are_named(toy: Path, text: str) -> None:
    plant(toy, text)
    result = mutate(toy)
    assert result.returncode == 1
    assert "toy.txt" in result.stderr


def test_the_help_teaches() -> None:
    shown = subprocess.run(
        [sys.executable, SCRIPTS / "mutate.py", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for word in ("killed", "lived", "stale", "= reason", "--only", "examples"):
        assert word in shown
