"""Which files of a tree a Python file imports, and which of many use each other in a circle."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import python_source

COMPILED = {"_core"}  # modules that have no file here

Arrows = dict[str, set[str]]


@dataclass(frozen=True)
class Import:
    """What one name of an import statement leads to.

    Attributes:
        file: None if a package of the tree has no such module.
    """

    line: int
    name: str
    file: Path | None


class Imports:
    """Finds the files that Python files import, wherever a statement says so: in a function, too,
    and for type checkers alone. Modules of other projects are left out."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, path: Path, text: str) -> Iterator[Import]:
        """The imports of the file at `path`."""
        for node in python_source.statements(text):
            if isinstance(node, ast.Import):
                for name in node.names:
                    yield from self._module(path, node.lineno, name.name)
            elif isinstance(node, ast.ImportFrom):
                yield from self._names(path, node)

    def _module(self, path: Path, line: int, name: str) -> Iterator[Import]:
        parts = name.split(".")
        for above in self._search_path(path):
            found = _module_file(above.joinpath(*parts))
            if found is not None or _is_package(above / parts[0]):
                yield Import(line, name, found)
                return

    def _names(self, path: Path, node: ast.ImportFrom) -> Iterator[Import]:
        """Of `from above.parts import names`: modules, or the package that has the names."""
        parts = (node.module or "").split(".")
        if parts[-1] in COMPILED:
            return
        above = self._search_path(path)
        if node.level:
            above = [path.parents[node.level - 1]]
        for folder in above:
            package = folder.joinpath(*filter(None, parts))
            names = [each.name for each in node.names if each.name not in COMPILED]
            files = {name: _module_file(package / name) or _module_file(package) for name in names}
            if any(files.values()) or node.level or _is_package(folder / parts[0]):
                for name, file in files.items():
                    full = name if file is not None and file.stem == name else ""
                    yield Import(node.lineno, ".".join(filter(None, [*parts, full])), file)
                return

    def _search_path(self, path: Path) -> Iterable[Path]:
        """Folders above the file that can hold whole packages, the nearest first."""
        return [
            above
            for above in path.parents
            if above.is_relative_to(self._root) and not (above / "__init__.py").is_file()
        ]


def circles(arrows: Arrows) -> list[list[str]]:
    """The nodes that use each other, each circle sorted."""
    reach = {node: _reachable(arrows, node) for node in arrows}
    found = {
        tuple(sorted(other for other in reach[node] if node in reach[other]))
        for node in arrows
        if node in reach[node]
    }
    return sorted(map(list, found))


def _reachable(arrows: Arrows, start: str) -> set[str]:
    seen: set[str] = set()
    left = [start]
    while left:
        for node in arrows[left.pop()] - seen:
            seen.add(node)
            left.append(node)
    return seen


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _module_file(path: Path) -> Path | None:
    candidates = (path.with_name(path.name + ".py"), path / "__init__.py")
    return next((each for each in candidates if each.is_file()), None)
