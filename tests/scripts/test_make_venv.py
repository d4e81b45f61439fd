"""scripts/make_venv.sh installs each requirement once, and leaves alone what is not its own."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Stands for Python and pip: it notes what it is asked for.
PYTHON = """#!/bin/sh
case "$*" in
  *venv*) mkdir -p .venv/bin && cp "$0" .venv/bin/python && echo venv >>asked ;;
  *sysconfig*) echo site ;;
  *pip*) shift 4 && echo "$@" >>asked ;;
esac
"""


def test_what_the_build_needs_is_installed_first(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "site").mkdir()
    (tmp_path / "requirements-dev.txt").write_text("torch==2\nnumpy==1\nruff==3\nnanobind==4\n")
    script = shutil.copy(ROOT / "scripts" / "make_venv.sh", tmp_path / "scripts")
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)

    def asked(*stage: str) -> list[str]:
        log = tmp_path / "asked"
        log.write_text("")
        command = [script, *stage]
        environment = os.environ | {"PYTHON": str(python)}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return log.read_text().splitlines()

    options = "--quiet --disable-pip-version-check"
    assert asked("begin") == ["venv", f"{options} numpy==1 ruff==3 nanobind==4"]
    assert asked("begin") == []
    assert asked() == [f"{options} -r requirements-dev.txt"]
    assert asked("begin") == asked() == []
    (tmp_path / "requirements-dev.txt").write_text("numpy==2\n")
    assert asked() == ["venv", f"{options} numpy==2", f"{options} -r requirements-dev.txt"]


def test_an_environment_behind_a_link_is_not_emptied(tmp_path: Path) -> None:
    checkout, other = tmp_path / "checkout", tmp_path / "other"
    (checkout / "scripts").mkdir(parents=True)
    other.mkdir()
    (other / "kept").write_text("")
    (checkout / ".venv").symlink_to(other)
    (checkout / "requirements-dev.txt").write_text("no-such-package==0\n")
    script = shutil.copy(ROOT / "scripts" / "make_venv.sh", checkout / "scripts")
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f".venv is a link to {other}" in done.stderr
    assert (other / "kept").exists()
