"""How large classes are: their members, and the files that they live in.

Members are methods and fields, one for each declaration; defaulted and deleted functions, types and
constants don't count. In Python the attributes that methods assign to `self` are fields. A C++
class lives in the file that defines it and in those that include that file and define its methods.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import budgets
import cpp_source
import python_source

MAX_MEMBERS = 40
MAX_FILES = 2
LINKED = re.compile("(src|include|apps|python)/")  # into one program
OWN = re.compile(r"\(unnamed\)|DELTAWIRE_TARGET")  # namespaces whose names each object file has


@dataclass(frozen=True)
class ClassSize:
    """A class: where it is defined, its members, and all files that it lives in."""

    name: str
    path: str
    line: int
    methods: int
    fields: int
    files: tuple[str, ...]

    @property
    def members(self) -> int:
        """Methods and fields."""
        return self.methods + self.fields

    def problem(self) -> str:
        """What is wrong with it; "" if nothing is."""
        if self.members > MAX_MEMBERS:
            return (
                f"{self.name} has {self.members} members ({self.methods} methods, {self.fields} "
                f"fields), the limit is {MAX_MEMBERS}; which classes wait inside it?"
            )
        if len(self.files) > MAX_FILES:
            return (
                f"{self.name} lives in {len(self.files)} files, the limit is {MAX_FILES}: "
                f"{', '.join(self.files)}"
            )
        return ""


class ClassSizes:
    """Collects the classes of a tree, file by file."""

    def __init__(self) -> None:
        self._cpp: list[tuple[str, cpp_source.Class]] = []
        self._python: list[ClassSize] = []
        # For each class, the files that define methods of it.
        self._definers: dict[str, set[str]] = defaultdict(set)
        self._included: dict[str, set[str]] = {}

    def add_cpp(self, path: str, text: str, source: cpp_source.Source) -> None:
        """Adds the classes of a C++ file that `cpp_source.read` has read."""
        self._cpp += [(path, each) for each in source.classes]
        for function in source.functions:
            scopes = function.name.split("::")[:-1]
            for begin in range(len(scopes)):  # a::Outer::Inner::f counts for both
                self._definers["::".join(scopes[begin:])].add(path)
                self._definers[scopes[begin]].add(path)
        self._included[path] = {include.target for include in cpp_source.includes(text)}

    def add_python(self, path: str, text: str) -> None:
        """Adds the classes of a Python file."""
        for node in python_source.statements(text):
            if isinstance(node, ast.ClassDef):
                self._python.append(_python_class(path, node))

    def all(self) -> list[ClassSize]:
        """All classes, the largest first."""
        sizes = self._python + [self._whole(path, found) for path, found in self._cpp]
        return sorted(
            sizes, key=lambda size: (-size.members, -len(size.files), size.path, size.line)
        )

    def named_twice(self) -> Iterator[tuple[str, int, str]]:
        """(file, line, what is wrong) for each class of the library or the program whose name is
        also another's: the linker takes the functions of either for both."""
        first: dict[str, str] = {}
        for path, found in self._cpp:
            name = f"{found.namespace}::{found.name}"
            shared = LINKED.match(path) and not budgets.TESTS.search(path) and not OWN.search(name)
            if shared and (other := first.setdefault(name, path)) != path:
                problem = f"{name} is another class in {other}: one program has both"
                yield path, found.line, problem

    def _whole(self, path: str, found: cpp_source.Class) -> ClassSize:
        header = re.sub(r"^(src|apps|include|tests)/", "", path)
        local = path.rpartition("/")[2]
        files = {path}
        for definer in self._definers.get(found.name, ()):
            included = self._included[definer]
            beside = definer.rpartition("/")[0] == path.rpartition("/")[0]
            if header in included or (beside and local in included):
                files.add(definer)
        return ClassSize(
            found.name, path, found.line, found.methods, found.fields, tuple(sorted(files))
        )


def _python_class(path: str, node: ast.ClassDef) -> ClassSize:
    methods = {
        each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    fields = set()
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            fields.add(each.target.id)
    for inside in ast.walk(node):
        if (
            isinstance(inside, ast.Attribute)
            and isinstance(inside.ctx, ast.Store)
            and isinstance(inside.value, ast.Name)
            and inside.value.id == "self"
        ):
            fields.add(inside.attr)
    fields -= methods  # a property with a setter is a method
    return ClassSize(node.name, path, node.lineno, len(methods), len(fields), (path,))
