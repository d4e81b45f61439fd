#!/usr/bin/env python3
"""Checks the project's rules that a compiler does not: which layer may include or import which,
circles of Python modules, how long files and functions may be, how large classes and the whole may
be, what kernels may include, tensors that depend on torch's defaults, who reads the text of specs,
and names that say nothing.

The rules of the layers are in docs/design/architecture.md, in the tables between the markers
`layers` and `python layers`; how large the whole may be is in scripts/budgets.py. A file of more
than 400 lines is printed as a question; one of more than 800 is a violation.

usage: scripts/check_layers.py [ROOT] [--figures]     exit status 1 if anything is wrong
       --figures: the largest classes, and files and lines by folder
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import budgets
import cpp_source
import python_source
import spec_readers
from class_sizes import ClassSizes
from layer_tables import Layer, TableError, read_layers
from python_layers import PACKAGE, PythonLayers

LONG_FILE_LINES = 400
MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 60
FOLDERS = ("src", "apps", "include", "tests", "bench", "examples", "python", "lab", "scripts")
CPP = {".h", ".hpp", ".c", ".cc", ".cu"}
CHECKED = CPP | {".py", ".sh"}
SHARED_WITH_TESTS = "_testing.h"  # headers that help a layer's own tests
SKIPPED_FOLDERS = {"__pycache__", ".venv", "build", "out"}
EMPTY_NAMES = {"utils", "util", "common", "misc", "manager", "helper", "helpers"}
# The targets that kernels may be written for, and the header of their instructions.
INTRINSICS = {
    "ref": None,
    **dict.fromkeys(("avx2", "avx512", "avx512vbmi"), "immintrin.h"),
    "neon": "arm_neon.h",
}
TARGETS = "|".join(INTRINSICS)
KERNEL = re.compile(rf"_({TARGETS})\.(cc|h)$|_ops\.h$|/codecs/kernels/\w+\.h$")
KERNEL_MAY_INCLUDE = {
    *("cstddef", "cstdint", "cstring", "codecs/target_id.h"),
    *(
        "base/bit_functions.h",
        "base/bits.h",
        "base/float16.h",
        "base/little_endian.h",
        "base/prefetch.h",
        "base/random.h",
    ),
}
# Folders of src/codecs that are not codecs, but code that several codecs share.
SHARED_BY_CODECS = {"kernels", "planes", "sparse"}
PUBLIC = "deltawire/"


class Checker:
    """All checks of one tree; collects what it finds in `violations`."""

    def __init__(self, root: Path):
        self.root = root
        self.layers = read_layers(root)
        self.home_of_header = {
            header: layer.name for layer in self.layers.values() for header in layer.headers
        }
        self.violations: list[str] = []
        self.questions: list[str] = []
        self.notes: list[str] = []
        self.python = PythonLayers(root)
        self.classes = ClassSizes()
        self.lines: dict[str, int] = {}  # by file

    def run(self) -> list[str]:
        """Checks every file; returns the violations."""
        for path in self._files():
            self._check_file(path)
        for size in self.classes.all():
            if problem := size.problem():
                self._report(self.root / size.path, size.line, problem)
        for path, line, problem in self.classes.named_twice():
            self._report(self.root / path, line, problem)
        if (self.root / "CMakeLists.txt").is_file():  # a whole tree
            self.violations += self.python.rows_without_modules()
        for problem in self.python.circles():
            self._report(*problem)
        self._check_headers_have_a_home()
        self._check_budgets()
        return self.violations

    def _files(self) -> Iterator[Path]:
        for folder in FOLDERS:
            for path in sorted((self.root / folder).rglob("*")):
                parts = path.relative_to(self.root).parts
                if path.suffix in CHECKED and path.is_file() and not SKIPPED_FOLDERS & set(parts):
                    yield path

    def _report(self, path: Path, line: int, text: str) -> None:
        self.violations.append(f"{path.relative_to(self.root)}:{line}: {text}")

    def _check_file(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        lines = text.count("\n") + (not text.endswith("\n") and text != "")
        name = path.relative_to(self.root).as_posix()
        self.lines[name] = lines
        if LONG_FILE_LINES < lines <= MAX_FILE_LINES:
            self.questions.append(f"{name} has {lines} lines: is it one idea?")
        if lines > MAX_FILE_LINES:
            self._report(
                path,
                MAX_FILE_LINES + 1,
                f"the file has {lines} lines, the limit is {MAX_FILE_LINES}; "
                "split it where two ideas meet",
            )
        words = set(re.split(r"[_\-.]", path.stem.lower()))
        for word in sorted(words & EMPTY_NAMES):
            self._report(path, 1, f"'{word}' in a file name says nothing; name what the file holds")
        for line in (
            spec_readers.lines_that_read(name, text) if path.suffix in CPP | {".py"} else ()
        ):
            self._report(path, line, "takes a spec's text apart: ask Spec (deltawire/spec.h)")
        if path.suffix in CPP:
            source = cpp_source.read(text)
            self._check_includes(path, text)
            self._check_functions(path, source.functions)
            self.classes.add_cpp(name, text, source)
        elif path.suffix == ".py":
            self.classes.add_python(name, text)
            self._check_functions(path, python_functions(text))
            for problem in self.python.add(path, text):
                self._report(*problem)
            if name.startswith(PACKAGE) and "torch." in text:
                for line, function, missing in python_source.left_to_defaults(text):
                    self._report(
                        path,
                        line,
                        f"{function} without {missing}: a program may set another default",
                    )

    def _check_functions(self, path: Path, functions: list[cpp_source.Function]) -> None:
        for function in functions:
            if function.lines > MAX_FUNCTION_LINES:
                self._report(
                    path,
                    function.first,
                    f"{function.name} has {function.lines} lines, the limit is "
                    f"{MAX_FUNCTION_LINES}; give its parts names and make them functions",
                )

    def _check_includes(self, path: Path, text: str) -> None:
        layer = self._layer_of(path)
        kernel = KERNEL.search(path.as_posix()) and path.is_relative_to(self.root / "src")
        for include in cpp_source.includes(text):
            ours = include.quoted or include.target.startswith(PUBLIC)
            problem = self._layer_problem(path, layer, include.target) if ours else None
            if include.target.endswith(".cc"):
                problem = "only the build compiles a file again, for another instruction set"
            if kernel and not problem:
                problem = self._kernel_problem(path, include.target)
            if problem:
                self._report(path, include.line, f"includes {include.target}: {problem}")

    def _layer_of(self, path: Path) -> Layer | None:
        relative = path.relative_to(self.root).as_posix()
        if relative.startswith("include/"):
            return self.layers.get(self.home_of_header.get(path.name, ""))
        homes = [each for each in self.layers.values() if relative.startswith(each.folder + "/")]
        return max(homes, key=lambda layer: len(layer.folder), default=None)

    def _layer_problem(self, path: Path, layer: Layer | None, target: str) -> str | None:
        if layer is None:
            unknown = "this folder has no row in docs/design/architecture.md"
            return unknown if "/" in target else None
        if target.startswith(PUBLIC):
            return self._public_problem(layer, target.removeprefix(PUBLIC))
        if path.is_relative_to(self.root / "include"):
            return "a public header may include only other public headers"
        owner, _, rest = target.partition("/")
        if not rest:
            beside = (path.parent / target).is_file()
            return None if beside else "no such file in this folder; write the path from src/"
        if layer.whole_row or owner in layer.layers:
            allowed = layer.layers | {layer.name}
            if owner not in allowed:
                return f"{layer.name} may use only {_names(allowed)} (docs/design/architecture.md)"
            return self._codec_problem(path, target)
        if (self.root / layer.folder / target).is_file() or (path.parent / target).is_file():
            return None
        if layer.name == "tests" and target.endswith(SHARED_WITH_TESTS):
            return None
        others = _names(layer.layers) or "nothing else"
        return f"{layer.folder}/ may use only public headers and {others}"

    def _public_problem(self, layer: Layer, header: str) -> str | None:
        home = self.home_of_header.get(header)
        if home is None:
            return "this header has no layer; add it to the table in docs/design/architecture.md"
        sees_all = not layer.whole_row or "public" in layer.contracts
        if sees_all or home in layer.layers | {layer.name} or header in layer.contracts:
            return None
        return (
            f"it belongs to {home}, but {layer.name} may use only "
            f"{_names(layer.layers | {layer.name})} (docs/design/architecture.md)"
        )

    def _codec_problem(self, path: Path, target: str) -> str | None:
        """What is wrong if a codec includes another one, or anything but a test includes it."""
        parts = Path(target).parts
        if len(parts) < 3 or parts[0] != "codecs":
            return None
        codecs = self.root / "src" / "codecs"
        if not path.is_relative_to(codecs):
            return "a codec's folder is its own; others have the registry (deltawire/codec.h)"
        # Below src/codecs/; another name for files directly there.
        places = (path.relative_to(codecs).parts, parts[1:])
        own, other = (place[place[0] == "baselines"] for place in places)
        if other in {own, *SHARED_BY_CODECS} or own.endswith("_test.cc"):
            return None
        return f"codecs do not know each other; what {own} and {other} share has codecs/kernels/"

    def _kernel_problem(self, path: Path, target: str) -> str | None:
        own = path.relative_to(self.root / "src").parent.as_posix()
        shared = rf"{own}/\w+_(ops|{TARGETS})\.h|codecs/kernels/\w+\.h"
        if target in KERNEL_MAY_INCLUDE or re.fullmatch(shared, target):
            return None
        if target == INTRINSICS.get(path.stem.rpartition("_")[2]):
            return None
        return (
            f"a kernel ({path.name}) may include only its own _ops.h, _avx2.h and so on, "
            f"codecs/kernels/ and {_names(KERNEL_MAY_INCLUDE)}, so that it runs on any device"
        )

    def _check_headers_have_a_home(self) -> None:
        folder = self.root / "include" / "deltawire"
        for path in sorted([*folder.glob("*.h"), *folder.glob("*.hpp")]):
            if path.name not in self.home_of_header:
                self._report(
                    path, 1, "no layer owns it; add it to the table in docs/design/architecture.md"
                )

    def _check_budgets(self) -> None:
        for row in budgets.budgets(self.root):
            if row.passed:
                self.violations.append(
                    f"{row.name}: {row.count:,}, the limit is {row.limit:,} (scripts/budgets.py); "
                    "take away as much as you add"
                )
            if row.count is None and (self.root / "CMakeLists.txt").is_file():
                self.notes.append(f"{row.name}: not counted, this tree is not git's")


def _names(names: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(names))


def python_functions(text: str) -> list[cpp_source.Function]:
    """All functions of a Python file. Their lengths leave out docstrings, which should say all that
    a caller needs, and include the functions nested in them."""
    return [
        cpp_source.Function(
            node.name, node.lineno, (node.end_lineno or node.lineno) - _doc_lines(node)
        )
        for node in python_source.statements(text)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _doc_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if ast.get_docstring(node) is None:
        return 0
    doc = node.body[0]
    return (doc.end_lineno or doc.lineno) - doc.lineno + 1


def print_figures(checker: Checker) -> None:
    """Prints the largest classes, and how many files and lines each folder has."""
    print(f"{'members':>8}{'methods':>9}{'fields':>8}{'files':>7}  class")
    sizes = checker.classes.all()
    many = [size for size in sizes if len(size.files) > 2]
    for size in [*sizes[:20], *(size for size in many if size not in sizes[:20])]:
        counts = f"{size.members:8}{size.methods:9}{size.fields:8}{len(size.files):7}"
        print(f"{counts}  {size.name}  {size.path}")
    print_folders("sources", checker.lines)
    pages = [path for place in ("docs", "src") for path in (checker.root / place).rglob("*.md")]
    print_folders(
        "pages",
        {
            path.relative_to(checker.root).as_posix(): path.read_text().count("\n")
            for path in (*checker.root.glob("*.md"), *pages)
        },
    )


def print_folders(what: str, counts: dict[str, int]) -> None:
    """Prints how many files and lines each folder has, down to the third level."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for name, count in counts.items():
        folders = name.split("/")[:-1]
        for depth in range(1, min(3, len(folders)) + 1):
            files["/".join(folders[:depth])] += 1
            lines["/".join(folders[:depth])] += count
    print(f"\n{what:>8}{'lines':>9}  folder")
    for folder in sorted(files):
        print(f"{files[folder]:8}{lines[folder]:9}  {folder}")
    print(f"{len(counts):8}{sum(counts.values()):9}  all")


def main(arguments: list[str]) -> int:
    """Prints one line for each violation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--figures", action="store_true")
    chosen = parser.parse_args(arguments)
    try:
        checker = Checker(chosen.root.resolve())
        violations = checker.run()
    except TableError as error:
        print(error)
        return 1
    if chosen.figures:
        print_figures(checker)
        return 0
    for note in checker.notes:
        print(f"note: {note}")
    for question in checker.questions:
        print(f"question: {question}")
    print(*violations, sep="\n", end="\n" if violations else "")
    if violations:
        print(f"{len(violations)} violations of the rules in docs/design/architecture.md")
        return 1
    print("layers, lengths, classes and names: all as docs/design/architecture.md says")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
