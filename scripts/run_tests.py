#!/usr/bin/env python3
"""Runs the tests of the release build, except those that passed before with the same inputs.

    scripts/run_tests.py cpp|python|thorough [--jobs N] [--again]

`python` leaves out tests with the mark `thorough`; `thorough` runs those alone, pytest by itself
all. A C++ test's inputs are its command, the programs, files and folders in it, and its
properties. Python's tests share one set of inputs: all files of the project and what was built for
them. The data in DELTAWIRE_DATA, the machine, installed packages and the environment's
DELTAWIRE_... are inputs of both. build/release/passed.json keeps what passed; --again runs all
tests.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "release"
CPU = ("model name", "flags", "Features")


def digest(parts: Iterable[bytes | str]) -> str:
    """A digest of all parts, each with its length."""
    total = hashlib.sha256()
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        total.update(len(encoded).to_bytes(8, "little") + encoded)
    return total.hexdigest()


class Files:
    """Digests of files' contents; reads each file once."""

    def __init__(self) -> None:
        self._known: dict[Path, str] = {}

    def holding(self, path: Path) -> str:
        """The digest of a file, a link, or all files of a folder; "" if `path` does not exist."""
        if path not in self._known:
            self._known[path] = self._read(path)
        return self._known[path]

    def _read(self, path: Path) -> str:
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.is_file())
            return digest(f"{p.relative_to(path)} {self.holding(p)}" for p in inside)
        if not path.is_file():
            return ""
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()


def surroundings() -> list[str]:
    """What all tests depend on besides the project's files."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    found = [platform.platform(), sys.version, str(os.cpu_count())]
    found += sorted({line for line in lines if line.startswith(CPU)})
    found += [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("DELTAWIRE_")]
    data = os.environ.get("DELTAWIRE_DATA")
    places = sorted(Path(data).rglob("*")) if data else []
    for place in [
        *places,
        Path("/var/lib/dpkg/status"),
        *sorted(Path(sys.prefix).glob("lib*/*/site-packages")),
    ]:
        if place.exists():
            about = place.stat()
            found.append(f"{place} {about.st_size} {about.st_mtime_ns}")
    return found


def key_of(entry: dict, around: list[str], files: Files) -> str:
    """The key of the inputs of a C++ test; `entry` is ctest's description of it."""
    properties = [
        p for p in entry["properties"] if p["name"] not in ("COST", "PROCESSORS", "TIMEOUT")
    ]
    parts = [json.dumps(properties, sort_keys=True)]
    for argument in entry["command"]:
        path = Path(argument.rsplit("=", 1)[-1])
        parts += [argument, files.holding(path) if path.is_absolute() else ""]
    return digest([*around, *parts])


def project_key(around: list[str], files: Files, root: Path, built: Iterable[Path]) -> str:
    """The key of all files that git tracks or does not ignore, and of what was built."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
    ).stdout
    paths = [root / os.fsdecode(name) for name in sorted(set(listed.split(b"\0"))) if name]
    return digest([*around, *(f"{p} {files.holding(p)}" for p in [*paths, *sorted(built)])])


class Passed:
    """For each test that passed, by name, the key of its inputs when it last did."""

    def __init__(self, place: Path) -> None:
        self._place = place
        try:
            self._keys = json.loads(place.read_text())
        except (OSError, ValueError):
            self._keys = {}

    def has(self, name: str, key: str) -> bool:
        """Whether the test `name` passed with this key."""
        return self._keys.get(name) == key

    def keep(self, keys: dict[str, str], failed: set[str]) -> None:
        """Stores the tests of `keys` that did not fail. The file is replaced as a whole."""
        self._keys |= keys
        self._keys = {name: key for name, key in self._keys.items() if name not in failed}
        part = self._place.with_suffix(".part")
        part.write_text(json.dumps(self._keys, indent=1, sort_keys=True))
        part.replace(self._place)


def run_cpp(jobs: int, passed: Passed, again: bool) -> int:
    """Runs the C++ tests, and returns ctest's exit status."""
    ctest = ["ctest", "--preset", "release"]
    described = subprocess.run(
        [*ctest, "--show-only=json-v1"], cwd=ROOT, check=True, capture_output=True
    )
    files, around = Files(), surroundings()
    tests = json.loads(described.stdout)["tests"]
    keys = {test["name"]: key_of(test, around, files) for test in tests}
    due = {name: key for name, key in keys.items() if again or not passed.has(name, key)}
    if len(due) < len(keys):
        spared = f"{len(keys) - len(due)} of {len(keys)}"
        print(f"{spared} passed before with the same inputs (AGAIN=1 runs them, too)", flush=True)
    if not due:
        return 0
    names = f"^({'|'.join(map(re.escape, due))})$"
    report = BUILD / "Testing" / "report.xml"
    report.unlink(missing_ok=True)
    run = [*ctest, "-j", str(jobs), "-R", names, "--output-junit", str(report)]
    status = subprocess.run(run, cwd=ROOT).returncode
    if report.exists():
        cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
        failed = {case.attrib["name"] for case in cases if case.attrib.get("status") != "run"}
        passed.keep(due, failed)
    return status


def run_python(tests: str, jobs: int, passed: Passed, again: bool) -> int:
    """Runs Python's tests, `python` or `thorough`, and returns pytest's exit status."""
    built = [BUILD / "deltawire", *(BUILD / "python").rglob("*.so")]
    key = project_key(surroundings(), Files(), ROOT, built)
    if not again and passed.has(tests, key):
        print("passed before with the same inputs (AGAIN=1 runs them all the same)")
        return 0
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(jobs)]
    # By files, in their order: what a module's fixture makes is made once.
    command += ["--dist", "loadfile", "--no-loadscope-reorder"]
    command += ["--durations=25", "--durations-min=3"]
    command += ["-m", "thorough" if tests == "thorough" else "not thorough"]
    # The tests start hundreds of interpreters; without bytecode each would compile the package.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    status = subprocess.run(command, cwd=ROOT, env=environment).returncode
    passed.keep({tests: key}, {tests} if status else set())
    return status


def main(arguments: list[str] | None = None) -> int:
    """Runs the tests that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tests", choices=("cpp", "python", "thorough"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests at one time")
    parser.add_argument("--again", action="store_true", help="those that passed before, too")
    given = parser.parse_args(arguments)
    passed = Passed(BUILD / "passed.json")
    if given.tests == "cpp":
        return run_cpp(given.jobs, passed, given.again)
    return run_python(given.tests, given.jobs, passed, given.again)


if __name__ == "__main__":
    sys.exit(main())
