"""The tables of docs/design/architecture.md: which layer may use which, in C++ and in Python."""

import re
from dataclasses import dataclass
from pathlib import Path

import import_graph

APPLICATIONS = "apps"


class TableError(Exception):
    """A table in docs/design/architecture.md cannot be read."""


@dataclass(frozen=True)
class Layer:
    """One row of the table: where the layer lives and what it may include."""

    name: str
    folder: str
    headers: frozenset[str]  # its public headers
    layers: frozenset[str]  # it may include their private and public headers
    contracts: frozenset[str]  # further public headers that it may include

    @property
    def whole_row(self) -> bool:
        """Whether its row names all that it may include, public headers too."""
        return self.folder.startswith("src/") or self.of_applications

    @property
    def of_applications(self) -> bool:
        """Whether it is built on the library, which must not include it."""
        return f"{self.folder}/".startswith(f"{APPLICATIONS}/")


def read_layers(root: Path) -> dict[str, Layer]:
    """The layers of C++ by name."""
    page, rows = _rows(root, "layers", 5)
    layers = {}
    for cells in rows:
        (name,), (folder,) = _names(cells[0]), _names(cells[1])
        layers[name] = Layer(name, folder, *map(_names, cells[2:]))
    _check_arrows(page, {name: layer.layers for name, layer in layers.items()})
    for layer in layers.values():
        above = {other for other in layer.layers if layers[other].of_applications}
        if above and layer.folder.startswith("src/"):
            raise TableError(
                f"{page}: layer {layer.name} may use {', '.join(sorted(above))}: nothing in src/ "
                f"may see {APPLICATIONS}/"
            )
    return layers


@dataclass(frozen=True)
class Room:
    """One row of the table of Python's layers: what is in it, and what it may import."""

    name: str
    modules: frozenset[str]  # as paths in the package without .py; a folder ends with a slash
    rooms: frozenset[str]


def read_rooms(root: Path) -> dict[str, Room]:
    """The layers of the Python package by name."""
    page, rows = _rows(root, "python layers", 3)
    rooms = {}
    for cells in rows:
        (name,) = _names(cells[0])
        rooms[name] = Room(name, _names(cells[1]), _names(cells[2]))
    _check_arrows(page, {name: room.rooms for name, room in rooms.items()})
    return rooms


def _rows(root: Path, table: str, width: int) -> tuple[Path, list[list[str]]]:
    """The page, and the cells of a table's rows."""
    page = root / "docs" / "design" / "architecture.md"
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    found = re.search(f"<!-- {table} -->\n(.*?)<!-- /{table} -->", text, re.DOTALL)
    if found is None:
        raise TableError(f"{page}: no table between <!-- {table} --> and <!-- /{table} -->")
    rows = []
    for row in found.group(1).splitlines()[2:]:
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        if len(cells) != width:
            raise TableError(f"{page}: this row of the table has not {width} cells: {row}")
        rows.append(cells)
    return page, rows


def _check_arrows(page: Path, arrows: dict[str, frozenset[str]]) -> None:
    for name, used in arrows.items():
        for other in sorted(used - arrows.keys()):
            raise TableError(f"{page}: layer {name} may use {other}, which has no row")
    for circle in import_graph.circles(arrows):
        raise TableError(f"{page}: these layers may use each other: {', '.join(circle)}")


def _names(cell: str) -> frozenset[str]:
    return frozenset(re.findall(r"`([^`]+)`", cell))
