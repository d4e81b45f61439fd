"""scripts/run_tests.py skips tests that passed with the same inputs, and runs all others."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("run_tests", ROOT / "scripts" / "run_tests.py")
run_tests = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(run_tests)

PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(one NONE)
enable_testing()
add_test(NAME a.1 COMMAND ${CMAKE_SOURCE_DIR}/a.sh ${CMAKE_SOURCE_DIR}/seeds)
add_test(NAME b+2 COMMAND ${CMAKE_SOURCE_DIR}/b.sh)
"""
PRESETS = """{"version": 3,
 "configurePresets": [{"name": "release", "generator": "Unix Makefiles",
                       "binaryDir": "${sourceDir}/build/release"}],
 "testPresets": [{"name": "release", "configurePreset": "release"}]}"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of two tests, a.1 and b+2, which say in said-a and said-b that they ran."""
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "CMakePresets.json").write_text(PRESETS)
    (tmp_path / "seeds").mkdir()
    (tmp_path / "seeds" / "one").write_text("1")
    for name in "ab":
        write_test(tmp_path, name, "true")
    subprocess.run(["cmake", "--preset", "release"], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "BUILD", tmp_path / "build" / "release")
    return tmp_path


def write_test(project: Path, name: str, end: str) -> None:
    program = project / f"{name}.sh"
    program.write_text(f"#!/bin/sh\necho ran >> {project}/said-{name}\n{end}\n")
    program.chmod(0o755)


def ran(project: Path, *arguments: str) -> tuple[int, int, int]:
    """Exit status, and how often a.1 and b+2 have run."""
    status = run_tests.main(["cpp", "--jobs", "1", *arguments])
    said = [project / f"said-{name}" for name in "ab"]
    return status, *(len(s.read_text().splitlines()) if s.exists() else 0 for s in said)


def test_what_passed_is_not_run_again(project, capfd):
    assert ran(project) == (0, 1, 1)
    assert ran(project) == (0, 1, 1)
    assert "2 of 2 passed before with the same inputs" in capfd.readouterr().out
    assert ran(project, "--again") == (0, 2, 2)


def test_another_program_or_seed_runs_what_has_it(project):
    assert ran(project) == (0, 1, 1)
    write_test(project, "b", "true # changed")
    assert ran(project) == (0, 1, 2)
    (project / "seeds" / "two").write_text("2")
    assert ran(project) == (0, 2, 2)


def test_the_surroundings_count(project, monkeypatch):
    assert ran(project) == (0, 1, 1)
    monkeypatch.setenv("DELTAWIRE_FORCE_TARGET", "reference")
    assert ran(project) == (0, 2, 2)


def test_what_failed_runs_until_it_passes(project):
    write_test(project, "b", "false")
    assert ran(project) == (8, 1, 1)  # ctest's status
    assert ran(project) == (8, 1, 2)
    write_test(project, "b", "true")
    assert ran(project) == (0, 1, 3)


def test_any_file_of_the_project_counts_for_python(tmp_path):
    def key():
        return run_tests.project_key([], run_tests.Files(), tmp_path, [tmp_path / "built"])

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("built\nignored\n")
    keys = [key()]
    for name in ("new.py", "new.py", "built"):
        (tmp_path / name).open("a").write("x")
        keys.append(key())
    (tmp_path / "ignored").write_text("")
    assert len(set(keys)) == 4
    assert key() == keys[-1]


MARKED = """
import pathlib
import pytest

@pytest.mark.thorough
def test_thorough():
    pathlib.Path("said-thorough").touch()

def test_other():
    pathlib.Path("said-other").touch()
"""


def test_thorough_tests_are_run_apart(tmp_path, monkeypatch):
    (tmp_path / "build" / "release").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = thorough\n")
    (tmp_path / "test_both.py").write_text(MARKED)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "BUILD", tmp_path / "build" / "release")
    for tests in ("other", "thorough"):
        assert run_tests.main(["python" if tests == "other" else tests, "--jobs", "0"]) == 0
        assert [said.name for said in tmp_path.glob("said-*")] == [f"said-{tests}"]
        (tmp_path / f"said-{tests}").unlink()
