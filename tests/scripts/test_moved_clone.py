"""A clone that was copied or moved runs its own code: none of what its old place left behind."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ("settle_clone.sh", "make_venv.sh")


def settle(clone: Path) -> str:
    """The two scripts' output."""
    said = ""
    for name in SCRIPTS:
        command = [clone / "scripts" / name]
        said += subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return said


def package(clone: Path) -> Path:
    """Where the clone's interpreter finds what its release build made."""
    code = "import built; print(built.__file__)"
    done = subprocess.run(
        [clone / ".venv" / "bin" / "python", "-c", code], capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip())


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """One in which everything is built and installed."""
    clone = tmp_path / "first place"
    (clone / "scripts").mkdir(parents=True)
    for name in SCRIPTS:
        shutil.copy(ROOT / "scripts" / name, clone / "scripts")
    (clone / "requirements-dev.txt").write_text("nothing\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", clone / ".venv"], check=True)
    shutil.copy(clone / "requirements-dev.txt", clone / ".venv" / "installed-requirements.txt")
    (clone / ".venv" / "bin" / "pip").write_text(f"#!{clone}/.venv/bin/python\n")
    for preset in ("release", "dev"):
        (clone / "build" / preset / "python").mkdir(parents=True)
        cache = clone / "build" / preset / "CMakeCache.txt"
        cache.write_text(f"A:STRING=1\nCMAKE_HOME_DIRECTORY:INTERNAL={clone}\n")
    (clone / "build" / "release" / "python" / "built.py").touch()
    return clone


def test_one_that_stayed_is_left_alone(clone: Path) -> None:
    assert settle(clone) == ""
    assert package(clone) == clone / "build" / "release" / "python" / "built.py"


@pytest.mark.parametrize("how", [shutil.copytree, shutil.move])
def test_one_that_moved_runs_its_own_code(clone: Path, how) -> None:
    settle(clone)
    second = clone.parent / "second place"
    how(clone, second, **({"symlinks": True} if how is shutil.copytree else {}))
    said = settle(second)
    assert said.count("\n") == 3 and str(clone) in said
    assert not list((second / "build").iterdir())
    assert (second / ".venv" / "bin" / "pip").read_text() == f"#!{second}/.venv/bin/python\n"
    (second / "build" / "release" / "python").mkdir(parents=True)
    (second / "build" / "release" / "python" / "built.py").touch()
    assert package(second) == second / "build" / "release" / "python" / "built.py"
    assert settle(second) == ""


def test_make_asks_before_it_builds_or_runs() -> None:
    for goal in ("release", "demo", "test", "bench"):
        done = subprocess.run(
            ["make", "--dry-run", goal], cwd=ROOT, capture_output=True, text=True, check=True
        )
        lines = done.stdout.splitlines()
        settled = lines.index("scripts/settle_clone.sh")
        assert all("cmake" not in line and ".venv" not in line for line in lines[:settled]), goal
