"""How a layer's tests are built and run in a copy of the tree, those nearest to a file first.

Layers of C++ are rows of the table in docs/design/architecture.md; their tests are the programs
deltawire_<layer>_test and deltawire_<layer>_memory_test, and for applications also Python tests,
which run the program. Python's layers are folders, and so are their tests. On another machine than
aarch64 the kernels for aarch64 are a layer of their own, `neon`: they are compiled for the sysroot
of scripts/make_aarch64_sysroot.sh and run by qemu.
"""

import platform
import re
from dataclasses import dataclass
from pathlib import Path

import check_layers
import layer_tables

# For each layer, its folders and its tests' folders. A file in several belongs to the first layer.
PYTHON = {
    "torch": (("python/deltawire/torch",), ("tests/torch",)),
    "rounds": (("python/deltawire/rounds",), ("tests/rounds",)),
    "python": (("python",), ("tests/numpy_door", "tests/optim", "tests/traces")),
    "lab": (("lab",), ("tests/lab",)),
}
# The extension, and the programs that Python's tests run.
PYTHON_PROGRAMS = ("deltawire_python", "deltawire", "deltawire_session_rank")
# Tests in Python of the applications in apps/.
APPLICATIONS = {"cli": "tests/cli", "linear": "tests/linear"}
NEON = "neon"
# Small layers whose faults are often reads beyond an end, so their tests run under sanitizers,
# except those that count allocations, which can't.
SANITIZED = {"base", "wire", "optim", "planner"}
CPU_FLAGS = {"avx2": "avx2", "avx512": "avx512bw", "avx512vbmi": "avx512_vbmi2"}
# Code that is not the product, and Python whose tests need separate environments.
NOT_JUDGED = re.compile(
    r"_(test|testing|decoder)\.\w+$|/fuzz_\w+\.cc$|"
    r"^python/deltawire/(flower|torch/gpu)/"
)
SUITE = re.compile(r"^\s*(?:\w*TEST(?:_F|_P)?|RC_GTEST\w*_PROP)\(\s*(\w+)", re.MULTILINE)
FLAGS = "-O1 -Werror=return-type -D_GLIBCXX_ASSERTIONS"
WITHOUT = "-DDELTAWIRE_MPI=OFF"
CMAKE = f"cmake -S . -B {{build}} -G Ninja -DCMAKE_BUILD_TYPE=None {WITHOUT}"
MEMORY_KB = 12_000_000  # the limit for a program that a fault makes grow
PYTEST = ".venv/bin/python -m pytest -q -x -p no:cacheprovider"
WITH_PACKAGE = "PYTHONPATH=build/release/python"


class Layers:
    """The layers of a tree that can be tested on this machine, and which files are theirs."""

    def __init__(self, root: Path):
        rows = layer_tables.read_layers(root).values()
        self._headers = {f"include/deltawire/{h}": row.name for row in rows for h in row.headers}
        self._folders = {
            row.folder: row.name for row in rows if row.folder.startswith(("src/", "apps/"))
        }
        for name, (folders, _) in PYTHON.items():
            self._folders |= dict.fromkeys(folders, name)
        on_aarch64 = platform.machine() in ("aarch64", "arm64")
        self._emulated = set() if on_aarch64 else {NEON}
        self.names = sorted({*self._folders.values(), *self._emulated})
        info = Path("/proc/cpuinfo")
        words = set(info.read_text().split()) if info.is_file() else set()
        self._lacking = {target for target, flag in CPU_FLAGS.items() if flag not in words}

    def of(self, path: str) -> str | None:
        """The layer whose tests judge a file; None if there is none."""
        target = Path(path).stem.rpartition("_")[2]
        if not path.endswith((".h", ".hpp", ".cc", ".py")) or NOT_JUDGED.search(path):
            return None
        if target in self._lacking:
            return None
        if target in self._emulated:
            return target
        if path in self._headers:
            home = self._headers[path]
            return home if home in self.names else None
        inside = [folder for folder in self._folders if path.startswith(folder + "/")]
        return self._folders[max(inside, key=len)] if inside else None


@dataclass(frozen=True)
class Tests:
    """Shell commands that are run at the root of a copy."""

    prepare: str  # once
    build: str  # after each change
    run: str
    programs: str  # a pattern for the programs that are built
    grace: float = 20  # tests that take 5 times as long and these seconds more hang


def tests_of(layer: str, cores: int) -> Tests:
    """The commands that build and run all tests of a layer on `cores` cores."""
    if layer in PYTHON:
        folder = "build/release"
        prepare = f"cmake --preset release -DDELTAWIRE_BENCH=OFF {WITHOUT}"
        build = f"cmake --build {folder} -j {cores} --target {' '.join(PYTHON_PROGRAMS)}"
        run = f"{WITH_PACKAGE} {PYTEST} -n {2 * cores} {' '.join(PYTHON[layer][1])}"
        return Tests(prepare, build, run, f"{folder}/python/deltawire/_core*.so")
    folder, options, limit, grace = "build/mutants", "", f"ulimit -d {MEMORY_KB}; ", 20
    programs = f"^deltawire_{'(codecs|patch)' if layer == NEON else layer}(_memory)?_test"
    if layer in SANITIZED:
        folder, options = "build/mutants-sanitized", " -DDELTAWIRE_SANITIZE=address,undefined"
        limit = f"ASAN_OPTIONS=hard_rss_limit_mb={MEMORY_KB // 1000} "
    if layer == NEON:
        folder, grace = "build/mutants-aarch64", 120
        options = ' -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake"'
    prepare = CMAKE.format(build=folder) + f' -DCMAKE_CXX_FLAGS="{FLAGS}"{options}'
    if layer == NEON:
        prepare = (
            f"mkdir -p build && ln -sfn ../../../aarch64-sysroot build/aarch64-sysroot && {prepare}"
        )
    named = f"ninja -C {folder} -t targets all | grep -oE '{programs}:' | tr -d :"
    build = f"cmake --build {folder} -j {cores} --target $({named})"
    run = (
        f"{limit}GTEST_FAIL_FAST=1 ctest --test-dir {folder} -R '{programs}([.]|$)' -j {8 * cores} "
        "--stop-on-failure --no-tests=error --output-on-failure"
    )
    if layer not in APPLICATIONS:
        return Tests(prepare, build, run, f"{folder}/**/deltawire_*_test", grace)
    in_python = f"DELTAWIRE_BIN=$PWD/{folder}/deltawire {PYTEST} -n {2 * cores}"
    return Tests(
        prepare,
        f"{build} deltawire",
        f"{run} && {in_python} {APPLICATIONS[layer]}",
        f"{folder}/**/deltawire*",
        grace,
    )


def lack(layer: str, root: Path) -> str:
    """What the machine lacks for a layer's tests; "" if nothing."""
    if layer == NEON and not (root / "build" / "aarch64-sysroot").is_dir():
        return "no build/aarch64-sysroot; scripts/make_aarch64_sysroot.sh makes it"
    return ""


def nearest(layer: str, path: str, root: Path, run: str) -> str:
    """Changes `run`, the command of a layer's tests, so that only those nearest to a file run: C++
    tests that include its header or have its name, Python tests that import it. "" if none do."""
    stem = Path(path).stem
    if layer in PYTHON:
        wanted = re.compile(rf"^(?=.*import).*\b{stem}\b", re.MULTILINE)
        tests = [file for folder in PYTHON[layer][1] for file in (root / folder).rglob("test_*.py")]
        found = [str(t.relative_to(root)) for t in sorted(tests) if wanted.search(t.read_text())]
        return f"{WITH_PACKAGE} {PYTEST} {' '.join(found)}" if found else ""
    bare = re.sub(rf"_({check_layers.TARGETS})$", "", stem)
    wanted = re.compile(rf'#include "[^"]*\b{re.escape(bare)}(_ops)?\.h"')
    suites = set()
    for test in (root / path).parent.rglob("*_test.cc"):
        text = test.read_text()
        if test.stem == f"{bare}_test" or wanted.search(text):
            suites.update(SUITE.findall(text))
    patterns = ":".join(f"{suite}.*:{suite}/*:*/{suite}.*:*/{suite}/*" for suite in sorted(suites))
    cpp_tests = run.partition(" && ")[0]  # Python tests test no single file
    return f"export GTEST_FILTER='{patterns}'; {cpp_tests}" if suites else ""
