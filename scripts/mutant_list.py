"""The lists of mutants, scripts/mutants/<layer>.txt: read, and planted one at a time. A folder of a
layer may have its own, src/<layer>/<folder>/<folder>_mutants.txt; the layer's commands follow its.

A list is plain text. Its head says how the layer is built and tested, in shell commands that run at
the root of a copy of the tree. Then comes a file, and under it the mutants of single lines in it:

    prepare: cmake -S . -B build/mutants -G Ninja
    build: ninja -C build/mutants deltawire_base_test
    run: build/mutants/src/base/deltawire_base_test

    src/base/bits.h
    - filled_ >= 8
    + filled_ > 8

    @ unsigned get_unary(
    - at_ += used;
    + at_ += used + 1;
    = why no test can tell it from the original

`needs` runs first, at the root of the tree itself; where it fails, the layer is skipped and what it
printed is the reason. `prepare` runs once in each new copy, `build` after each mutant, then `run`
until one fails; each may stand on several lines. Tests that take five times as long as without a
mutant, and 20 seconds more (`grace: 20`), hang. The text after `- ` must stand in the file exactly
once; where it does not, `@ ` names a text that does, and the first place behind it counts. `= `
marks an equivalent mutant, which is not run. An empty line ends a mutant, `#` begins a comment
line.
"""

from dataclasses import dataclass, field
from pathlib import Path

COMMANDS = ("needs", "prepare", "build", "run")
GRACE_SECONDS = 20
FIELDS = {"@": "after", "-": "old", "+": "new", "=": "equivalent"}


class ListError(Exception):
    """A list that cannot be read; the message names the file and the line."""


class StaleError(Exception):
    """A mutant whose text is not where its list says; the message says what is wrong."""


@dataclass(frozen=True)
class Mutant:
    """One change of one line."""

    layer: str
    number: int  # in its list, from 1
    path: str  # from the root
    old: str
    new: str
    after: str = ""  # where to begin to look; empty: `old` stands once
    equivalent: str = ""  # why no test can kill it; empty: one must

    def place(self, text: str) -> int:
        """Where `old` begins in the file's text; StaleError when that is not one place."""
        begin = 0
        if self.after:
            begin = _only_place(text, self.after, "the line after @") + len(self.after)
            found = text.find(self.old, begin)
            if found < 0:
                raise StaleError(f"{self.old!r} does not stand after {self.after!r}")
            return found
        return _only_place(text, self.old, "the old text")

    def applied(self, text: str) -> str:
        """The file's text with the mutant in it."""
        at = self.place(text)
        return text[:at] + self.new + text[at + len(self.old) :]


def _only_place(text: str, wanted: str, what: str) -> int:
    times = text.count(wanted)
    if times != 1:
        raise StaleError(f"{what} {wanted!r} stands {times} times in the file, not once")
    return text.index(wanted)


@dataclass
class Layer:
    """A list: how the layer is built and tested, and its mutants."""

    name: str
    needs: list[str] = field(default_factory=list)
    prepare: list[str] = field(default_factory=list)
    build: list[str] = field(default_factory=list)
    run: list[str] = field(default_factory=list)
    grace: float = GRACE_SECONDS
    mutants: list[Mutant] = field(default_factory=list)


def read_layer(file: Path, name: str, like: Layer | None = None) -> Layer:
    """Reads one list, with the commands of another behind its own; ListError when it breaks the
    format."""
    layer = Layer(name)
    path, fields = "", {}

    def close(where: str) -> None:
        if not fields:
            return
        if not path or "old" not in fields or "new" not in fields:
            raise ListError(f"{where}: the mutant above lacks its file, its `- ` or its `+ ` line")
        if fields["old"] == fields["new"]:
            raise ListError(f"{where}: the mutant above changes nothing")
        layer.mutants.append(Mutant(layer.name, len(layer.mutants) + 1, path, **fields))
        fields.clear()

    lines = file.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate([*lines, ""], 1):
        where = f"{file}:{number}"
        key, _, rest = line.partition(": ")
        if line.startswith("#"):
            continue
        if not line.strip():
            close(where)
        elif key in COMMANDS and not path:
            getattr(layer, key).append(rest)
        elif key == "grace" and not path and rest.isdigit():
            layer.grace = int(rest)
        elif line[0] in FIELDS and (line[1:2] == " " or line == "+"):
            name = FIELDS[line[0]]
            if name in fields:
                raise ListError(f"{where}: a second {line[0]!r} line; an empty line ends a mutant")
            fields[name] = line[2:]
        elif not fields and " " not in line:
            path = line
        else:
            raise ListError(f"{where}: neither a command, a file, a mutant's line nor a comment")
    if like is not None:
        layer.needs += like.needs
        layer.prepare += like.prepare
        layer.build += like.build
        layer.run += like.run
    if not layer.run:
        raise ListError(f"{file}: no `run: ` line; how are its tests run?")
    return layer


def read_layers(root: Path) -> dict[str, Layer]:
    """All lists of a tree by name: `<layer>` or `<layer>-<folder>`."""
    files = sorted((root / "scripts" / "mutants").glob("*.txt"))
    layers = {file.stem: read_layer(file, file.stem) for file in files}
    for file in sorted((root / "src").glob("*/*/*_mutants.txt")):
        layer = file.parent.parent.name
        name = f"{layer}-{file.parent.name}"
        layers[name] = read_layer(file, name, layers[layer])
    return layers
