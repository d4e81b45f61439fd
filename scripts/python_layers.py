"""Checks the imports of Python files: layers of the package, and circles of modules."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import import_graph
import layer_tables

PACKAGE = "python/deltawire/"
PAGE = "docs/design/architecture.md"


class Problem(NamedTuple):
    """What is wrong with a line of a file."""

    path: Path
    line: int
    text: str


class PythonLayers:
    """Collects the imports of a tree's Python files."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rooms = layer_tables.read_rooms(root)
        self._home = {module: room for room in self._rooms.values() for module in room.modules}
        self._imports = import_graph.Imports(root)
        self._uses: dict[str, dict[str, int]] = {}  # by file: the files it imports, with lines

    def add(self, path: Path, text: str) -> Iterator[Problem]:
        """Reads a file; gives what is wrong with it alone."""
        name = self._name(path)
        uses = self._uses.setdefault(name, {})
        room = self._room_of(name)
        if room is None and name.startswith(PACKAGE):
            yield Problem(path, 1, f"no layer has this module; add it to the table in {PAGE}")
        for each in self._imports.of(path, text):
            if each.file is None:
                yield Problem(path, each.line, f"imports {each.name}: there is no such module")
                continue
            if each.file != path:
                uses.setdefault(self._name(each.file), each.line)
            other = self._room_of(self._name(each.file))
            if (
                room is not None
                and other is not None
                and other.name not in room.rooms | {room.name}
            ):
                allowed = ", ".join(sorted(room.rooms | {room.name}))
                text = f"imports {each.name}, of {other.name}: {room.name} may use only {allowed}"
                yield Problem(path, each.line, f"{text} ({PAGE})")

    def circles(self) -> Iterator[Problem]:
        """Of all files that were added."""
        arrows = {name: uses.keys() & self._uses.keys() for name, uses in self._uses.items()}
        for circle in import_graph.circles(arrows):
            first = self._uses[circle[0]]
            line = min(line for name, line in first.items() if name in circle)
            text = (
                f"these modules import each other: {', '.join(circle)}; move down what they share"
            )
            yield Problem(self._root / circle[0], line, text)

    def rows_without_modules(self) -> Iterator[str]:
        """What the table names and the package does not have."""
        if not (self._root / PACKAGE / "__init__.py").is_file():
            return
        for module, room in sorted(self._home.items()):
            file = module if module.endswith("/") else f"{module}.py"
            if not (self._root / PACKAGE / file).exists():
                yield f"{PAGE}: layer {room.name} names {module}, which {PACKAGE} does not have"

    def _name(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()

    def _room_of(self, name: str) -> layer_tables.Room | None:
        inside = name.removeprefix(PACKAGE).removesuffix(".py")
        if inside in self._home:
            return self._home[inside]
        for folder in sorted(self._home, key=len, reverse=True):
            if folder.endswith("/") and inside.startswith(folder) and name.startswith(PACKAGE):
                return self._home[folder]
        return None
