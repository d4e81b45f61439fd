#!/usr/bin/env python3
"""Draws, as text, which parts of a folder use which: Python by imports, C and C++ by includes.

A room is a sub-folder of the folder or a file directly in it (`a.h` and `a.cc` are one room). An
arrow leads from a room to another that it uses. A room without arrows is on floor 1, any other one
above the highest room that it uses. Rooms that use each other in a circle share a floor.

usage: scripts/draw_imports.py FOLDER...
"""

import argparse
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cpp_source
import import_graph
import layer_tables
from import_graph import Arrows

CPP = {".h", ".hpp", ".c", ".cc", ".inc"}
SKIPPED_FOLDERS = {"__pycache__", ".venv", "build", "out"}
PUBLIC = "deltawire/"


@dataclass(frozen=True)
class Drawing:
    """The rooms of a folder.

    Attributes:
        arrows: for each room, the rooms that it uses.
        floors: the number of each room's floor, from 1.
        circles: rooms that use each other, each circle sorted.
        files, lines: the sums over all rooms.
    """

    arrows: Arrows
    floors: dict[str, int]
    circles: list[list[str]]
    files: int
    lines: int

    def text(self, name: str) -> str:
        """A line of totals, then each floor from the top with its rooms and their arrows."""
        arrows = sum(map(len, self.arrows.values()))
        top = max(self.floors.values(), default=0)
        lines = [
            f"{name}: {_count(len(self.arrows), 'room')}, {_count(top, 'floor')}, "
            f"{_count(arrows, 'arrow')}, {_count(len(self.circles), 'circle')}; "
            f"{_count(self.files, 'file')}, {_count(self.lines, 'line')}"
        ]
        for floor in range(top, 0, -1):
            lines.append(f"floor {floor}")
            for room in sorted(room for room, at in self.floors.items() if at == floor):
                used = ", ".join(sorted(self.arrows[room]))
                lines.append(f"  {room}" + (f" -> {used}" if used else ""))
        lines += [f"circle: {' <-> '.join(circle)}" for circle in self.circles]
        return "\n".join(lines)


def draw(folder: Path, root: Path, with_tests: bool = False) -> Drawing:
    """Makes the drawing of a folder in a repository."""
    files = [path for path in _sources(folder) if with_tests or not _is_test(path)]
    uses = _Uses(root)
    arrows: Arrows = {_room(path, folder): set() for path in files}
    lines = 0
    for path in files:
        text = path.read_text(encoding="utf-8")
        lines += text.count("\n")
        own = _room(path, folder)
        for used in uses.of(path, text):
            if used.is_relative_to(folder) and (room := _room(used, folder)) in arrows:
                arrows[own] |= {room} - {own}
    circles = import_graph.circles(arrows)
    return Drawing(arrows, _floors(arrows, circles), circles, len(files), lines)


class _Uses:
    """Finds the files that a file imports or includes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._imports = import_graph.Imports(root)
        self._homes: dict[str, Path] = {}  # for each public header, its layer's folder
        try:
            layers = layer_tables.read_layers(root)
        except layer_tables.TableError:
            return
        for layer in layers.values():
            self._homes |= {header: root / layer.folder / header for header in layer.headers}

    def of(self, path: Path, text: str) -> Iterator[Path]:
        """The files of the repository that the file at `path` uses."""
        if path.suffix == ".py":
            found = (each.file for each in self._imports.of(path, text))
            yield from (file for file in found if file is not None)
        else:
            for include in cpp_source.includes(text):
                yield from self._included(path, include.target)

    def _included(self, path: Path, target: str) -> Iterator[Path]:
        if target.startswith(PUBLIC) and (home := self._homes.get(target.removeprefix(PUBLIC))):
            yield home
            return
        for above in path.parents:
            if (above / target).is_file():
                yield above / target
                return
            if above == self._root:
                return


def _sources(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if path.suffix in CPP | {".py"} and path.is_file() and not SKIPPED_FOLDERS & set(inside):
            yield path


def _is_test(path: Path) -> bool:
    stem = path.stem
    return stem.startswith(("test_", "fuzz_")) or stem.endswith(("_test", "_testing", "_decoder"))


def _room(path: Path, folder: Path) -> str:
    inside = path.relative_to(folder).parts
    return inside[0] + "/" if len(inside) > 1 else path.stem


def _floors(arrows: Arrows, circles: list[list[str]]) -> dict[str, int]:
    circle_of = {room: set(circle) for circle in circles for room in circle}
    floors: dict[str, int] = {}

    def floor(room: str) -> int:
        if room not in floors:
            together = circle_of.get(room, {room})
            below = set().union(*(arrows[each] for each in together)) - together
            floors.update(dict.fromkeys(together, 1 + max(map(floor, below), default=0)))
        return floors[room]

    for room in arrows:
        floor(room)
    return floors


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def main(arguments: list[str]) -> int:
    """Prints a drawing of each folder; exit status 1 if one has a circle."""
    parser = argparse.ArgumentParser(
        prog="scripts/draw_imports.py",
        description=__doc__.partition("\n\nusage")[0],
        epilog="Exit status: 1 if any folder has a circle.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folder", nargs="+", type=Path, help="e.g. src, src/codecs/gcomp, python/deltawire/torch"
    )
    parser.add_argument("--tests", action="store_true", help="tests and fuzzers, too")
    given = parser.parse_args(arguments)
    status = 0
    for folder in given.folder:
        if not folder.is_dir():
            parser.error(f"{folder} is not a folder")
        path = folder.resolve()
        root = next((above for above in path.parents if (above / ".git").exists()), path.parent)
        drawing = draw(path, root, given.tests)
        print(drawing.text(folder.as_posix()))
        status |= bool(drawing.circles)
    return status


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may leave early
    sys.exit(main(sys.argv[1:]))
